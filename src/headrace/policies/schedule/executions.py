"""Which sub-groups are executed in an epoch, in which order and with whom: earliest deadline first, shared.

Golab, Bijay, Ozsu, "Multi-Query Optimization of Sliding Window Aggregates by Schedule Synchronization", Algorithms 1
to 3. The paper's processor runs beside the stream; here many panes may close in one epoch, so it runs in virtual time:
the panes close one after another over the epoch's budget, and each execution takes as long as it is expected to cost.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.policies.schedule.groups import Group, SchedulePolicy, SubGroup
from headrace.policies.schedule.periods import PeriodChoice
from headrace.units import SECOND_US

__all__ = ["Advance", "Execution", "Left", "Plan", "ScheduleState", "Served", "TaskState", "enter", "plan_epoch"]


@dataclass(frozen=True, slots=True)
class TaskState:
    """When a sub-group is due next and when it was executed last (or entered), in event time."""

    deadline_us: int
    last_us: int


@dataclass(frozen=True, slots=True)
class ScheduleState:
    """What one epoch's plan hands to the next: sub-groups by group, and virtual time that was spent in advance."""

    tasks: Mapping[str, Mapping[str, TaskState]] = field(default_factory=dict)
    debt_us: int = 0


@dataclass(frozen=True, slots=True)
class Advance:
    """The watermark of a group before and after an epoch. Sub-groups that are new begin at `from_us`."""

    from_us: int
    to_us: int

    def __post_init__(self) -> None:
        if self.to_us < self.from_us:
            raise ValueError(f"a watermark cannot go back from {self.from_us} to {self.to_us} us")


@dataclass(frozen=True, slots=True)
class Served:
    """One sub-group's part in an execution: the window ends it is answered at.

    `lateness_panes` are the panes that closed beyond its period since its last execution; for aligned windows, beyond
    the first of its ends.
    """

    subgroup: str
    ends_us: tuple[int, ...]
    lateness_panes: int


@dataclass(frozen=True, slots=True)
class Execution:
    """Sub-groups of one group executed together when `end_us` was its newest closed pane end."""

    group: str
    end_us: int
    served: tuple[Served, ...]
    cost: float

    @property
    def subgroups(self) -> tuple[str, ...]:
        return tuple(each.subgroup for each in self.served)


@dataclass(frozen=True, slots=True)
class Left:
    """A sub-group that is due and was not executed: it stays in the queue, now `late_panes` behind."""

    group: str
    subgroup: str
    late_panes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The executions of an epoch in order, what they are expected to cost, and what is left for the next."""

    executions: tuple[Execution, ...]
    left: tuple[Left, ...]
    cost: float
    state: ScheduleState
    reason: str


def plan_epoch(
    policy: SchedulePolicy,
    groups: Sequence[Group],
    choices: Mapping[str, PeriodChoice],
    advances: Mapping[str, Advance],
    state: ScheduleState,
    budget: float | None,
    *,
    eager: bool = False,
) -> Plan:
    """The executions of one epoch within `budget`, in the unit of the costs; the same inputs give the same plan.

    Of all that is due, the sub-group furthest behind its deadline goes first, with those of its group that the policy
    allows. It is answered as of the newest closed pane and due again one period later, aligned windows at each of the
    ends they missed. What the budget has no room for stays due. An execution that is begun is finished and the excess
    taken from the next budget; something is executed in every epoch in which something is due.

    With a budget of None nothing is ever late: everything is executed at each of its deadlines.
    With `eager` an idle processor executes sub-groups before they are due, as the paper's does, but none twice without
    a new pane in between, and no aligned windows.
    """
    if eager and budget is None:
        raise ValueError("an eager schedule needs a budget, or it would never end")
    if budget is not None and budget < 0:
        raise ValueError(f"a budget cannot be negative: {budget}")
    queues = [
        _Queue.of(policy, number, group, choices[group.name], advances[group.name], state.tasks.get(group.name, {}))
        for number, group in enumerate(groups)
        if group.name in advances
    ]
    if budget is None:
        executions, debt = _at_every_deadline(queues), 0.0
    else:
        executions, debt = _within(budget, queues, state.debt_us / SECOND_US, eager)
    begun = {queue.group.name for queue in queues}
    tasks = {group.name: state.tasks[group.name] for group in groups if group.name in state.tasks.keys() - begun}
    tasks |= {queue.group.name: queue.states() for queue in queues}
    left = tuple(waiting for queue in queues for waiting in queue.left())
    cost = sum(execution.cost for execution in executions)
    reason = (
        f"{policy}: {sum(len(e.served) for e in executions)} sub-groups in {len(executions)} executions for {cost:.4g}"
        + (f" of {budget:.4g}" if budget is not None else "")
        + f", {len(left)} left due"
    )
    return Plan(tuple(executions), left, cost, ScheduleState(tasks, round(debt * SECOND_US)), reason)


def enter(group: Group, subgroup: SubGroup, period: int, after_us: int) -> TaskState:
    """A sub-group that begins after `after_us`: due first at the next multiple of its period, as all others are.

    >>> from headrace.policies.schedule.groups import Costs
    >>> enter(Group("g", 10, Costs(0, 1, 0), ()), SubGroup("a", 3, 5), 3, after_us=37)
    TaskState(deadline_us=60, last_us=30)
    """
    step, phase = period * group.pane_us, subgroup.phase * group.pane_us
    deadline = after_us - (after_us - phase) % step + step
    return TaskState(deadline, after_us - after_us % group.pane_us)


@dataclass(slots=True)
class _Task:
    """Sub-groups that run at one period and have one deadline."""

    members: tuple[SubGroup, ...]
    period_us: int
    every: bool
    panes: int
    answers: int
    priority: int
    deadline_us: int
    last_us: dict[str, int]


# Deadline, priority (the highest is the least here) and position, which keeps the order the same in every run.
_Key = tuple[int, int, int]


class _Queue:
    """The tasks of one group by deadline, and its event time."""

    def __init__(self, policy: SchedulePolicy, number: int, group: Group, over: Advance, tasks: list[_Task]):
        self.policy, self.number, self.group, self.over, self.tasks = policy, number, group, over, tasks
        self.opened_us = self.newest_us = self.closed(over.from_us)
        self.waiting: list[_Key] = []
        # Eager only: tasks that wait for the next pane.
        self.resting: list[int] = []
        # What the epoch's one scan has reached so far, if there is one.
        self.scanned: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        policy: SchedulePolicy,
        number: int,
        group: Group,
        choice: PeriodChoice,
        over: Advance,
        states: Mapping[str, TaskState],
    ) -> _Queue:
        together: dict[tuple[int, str | None], list[SubGroup]] = {}
        for subgroup in group.subgroups:
            # Sub-groups that were given one period are one task from then on, unless nothing is shared. Aligned windows
            # have their own ends to go through, and meet others there.
            alone = subgroup.every or policy is SchedulePolicy.NONE
            key = (choice.periods[subgroup.name], subgroup.name if alone else None)
            together.setdefault(key, []).append(subgroup)
        tasks = []
        for (period, _), members in together.items():
            every = members[0].every
            step = period * group.pane_us
            known = [states.get(m.name) or enter(group, m, period, over.from_us) for m in members]
            if every:
                # The next end after the last answered one, also if the sub-group's ends were others before.
                deadlines = [enter(group, members[0], period, k.last_us).deadline_us for k in known]
            else:
                ahead = [k.last_us + step if k.deadline_us <= k.last_us else k.deadline_us for k in known]
                asked = [min(due, k.last_us + step) for due, k in zip(ahead, known, strict=True)]
                deadlines = [due // group.pane_us * group.pane_us for due in asked]
            tasks.append(
                _Task(
                    members=tuple(members),
                    period_us=step,
                    every=every,
                    panes=max(m.panes for m in members),
                    answers=sum(m.answers for m in members),
                    priority=max(m.priority for m in members),
                    deadline_us=min(deadlines),
                    last_us={m.name: k.last_us for m, k in zip(members, known, strict=True)},
                )
            )
        return cls(policy, number, group, over, tasks)

    def closed(self, at_us: int) -> int:
        """The newest pane end that the watermark has reached."""
        return at_us - at_us % self.group.pane_us

    def push(self, position: int) -> None:
        task = self.tasks[position]
        heapq.heappush(self.waiting, (task.deadline_us, -task.priority, position))

    def advance(self, now_us: int, eager: bool) -> bool:
        """Closes the panes up to `now_us`; whether a resting task woke up."""
        newest = max(self.newest_us, self.closed(now_us))
        if newest == self.newest_us:
            return False
        self.newest_us = newest
        return eager and self.wake()

    def wake(self) -> bool:
        """Queues the resting tasks that may be executed at the newest pane end."""
        ready = [p for p in self.resting if self.may_run_early(self.tasks[p])]
        for position in ready:
            self.push(position)
        self.resting = [p for p in self.resting if p not in ready] if ready else self.resting
        return bool(ready)

    def may_run_early(self, task: _Task) -> bool:
        if task.every:
            return task.deadline_us <= self.newest_us
        return any(last < self.newest_us for last in task.last_us.values())

    def take(self) -> list[int]:
        """The first task and those executed together with it."""
        first = heapq.heappop(self.waiting)
        taken = [first[2]]
        if self.policy is SchedulePolicy.NONE:
            return taken
        latest = first[0]
        if latest < self.newest_us:
            if self.policy is SchedulePolicy.HYBRID_LATE:
                latest = self.newest_us - 1
            elif self.policy is SchedulePolicy.HYBRID_LATE_PENDING:
                latest = self.newest_us
        while self.waiting and self.waiting[0][0] <= latest:
            taken.append(heapq.heappop(self.waiting)[2])
        return taken

    def execute(self, taken: Sequence[int], room: float | None) -> Execution:
        """Answers tasks as of the newest pane end; aligned ones at all they missed, as many as there is `room` for."""
        costs, end_us = self.group.costs, self.newest_us
        tasks = [self.tasks[position] for position in taken]
        most = None
        each = sum(costs.of(0 if self.group.one_scan else t.panes, t.answers) - costs.fixed for t in tasks if t.every)
        if room is not None and each > 0:
            # Ends that cost no more than beginning another execution would are worth their time in any case.
            most = max(1, int(max(room - costs.fixed, costs.fixed) / each))
        served: list[Served] = []
        longest: dict[int, int] = {}
        answers = 0
        for task in tasks:
            ends: tuple[int, ...] = (end_us,)
            if task.every:
                missed = range(task.deadline_us, end_us + 1, task.period_us)
                ends = tuple(missed if most is None else missed[:most])
            # A sub-group that begins only later waits until then.
            begun = [member for member in task.members if task.last_us[member.name] < ends[-1]]
            for member in begun:
                asked_us = member.period * self.group.pane_us
                wanted = task.deadline_us if task.every else task.last_us[member.name] + asked_us
                late = max(0, max(end_us, self.opened_us) - wanted) // self.group.pane_us
                served.append(Served(member.name, ends, late))
                task.last_us[member.name] = ends[-1]
            panes = max(member.panes for member in begun)
            answers += sum(member.answers for member in begun) * len(ends)
            for end in ends:
                longest[end] = max(longest.get(end, 0), panes)
            task.deadline_us = ends[-1] + task.period_us
        return Execution(self.group.name, end_us, tuple(served), self._cost(longest, answers))

    def _cost(self, longest: Mapping[int, int], answers: int) -> float:
        """What answers cost at these ends, each with the panes of its longest window."""
        costs, pane_us = self.group.costs, self.group.pane_us
        if not self.group.one_scan:
            return costs.of(sum(longest.values()), answers)
        first, last = min(end - panes * pane_us for end, panes in longest.items()), max(longest)
        if self.scanned is None:
            self.scanned = first, last
            return costs.of((last - first) // pane_us, answers)
        begin, end = self.scanned
        self.scanned = min(first, begin), max(last, end)
        reached = (self.scanned[1] - self.scanned[0] - (end - begin)) // pane_us
        return costs.of(reached, answers) - costs.fixed

    def states(self) -> dict[str, TaskState]:
        return {name: TaskState(task.deadline_us, last) for task in self.tasks for name, last in task.last_us.items()}

    def left(self) -> list[Left]:
        newest = self.closed(self.over.to_us)
        return [
            Left(self.group.name, member.name, (newest - task.deadline_us) // self.group.pane_us)
            for task in self.tasks
            if task.deadline_us <= newest
            for member in task.members
        ]


def _at_every_deadline(queues: Sequence[_Queue]) -> list[Execution]:
    """Everything at each of its deadlines, whatever that costs, in the order of event time."""
    found: list[tuple[int, int, int, Execution]] = []
    for queue in queues:
        for position, task in enumerate(queue.tasks):
            if not task.every:
                # What an earlier budget left late is answered once, as of the newest pane end.
                task.deadline_us = max(task.deadline_us, queue.opened_us)
            queue.push(position)
        while queue.waiting and queue.waiting[0][0] <= queue.over.to_us:
            queue.newest_us = queue.waiting[0][0]
            taken = queue.take()
            found.append((queue.newest_us, queue.number, len(found), queue.execute(taken, None)))
            for position in taken:
                queue.push(position)
    return [execution for *_, execution in sorted(found, key=lambda item: item[:3])]


class _Clock:
    """Groups that follow one watermark, the group with the earliest deadline first."""

    def __init__(self, over: Advance, queues: list[_Queue]) -> None:
        self.over, self.queues, self.now_us = over, queues, over.from_us
        self._first: list[tuple[int, int, int, int]] = []
        self.by_number = {queue.number: queue for queue in queues}

    @property
    def span_us(self) -> int:
        return self.over.to_us - self.over.from_us

    def offer(self, queue: _Queue) -> None:
        """Takes note of the group's first task; what it said before is ignored from now on."""
        if queue.waiting:
            deadline, priority, position = queue.waiting[0]
            heapq.heappush(self._first, (deadline, priority, queue.number, position))

    def first(self) -> tuple[int, int, int, int] | None:
        """Deadline, priority, group and task of what goes first."""
        while self._first:
            deadline, priority, number, position = self._first[0]
            waiting = self.by_number[number].waiting
            if waiting and waiting[0] == (deadline, priority, position):
                return self._first[0]
            heapq.heappop(self._first)
        return None

    def advance(self, now_us: int, eager: bool) -> None:
        if now_us <= self.now_us:
            return
        self.now_us = now_us
        for queue in self.queues:
            if queue.advance(now_us, eager):
                self.offer(queue)

    def next_us(self, eager: bool) -> int | None:
        """The next event time at which something may become ready, if it comes in this epoch."""
        if eager:
            times = [queue.newest_us + queue.group.pane_us for queue in self.queues if queue.resting]
        else:
            first = self.first()
            times = [first[0]] if first else []
        return min((time for time in times if time <= self.over.to_us), default=None)


def _within(budget: float, queues: Sequence[_Queue], debt: float, eager: bool) -> tuple[list[Execution], float]:
    """Executions until virtual time reaches the budget, and by how much the last one went beyond."""
    by_span: dict[tuple[int, int], list[_Queue]] = {}
    for queue in queues:
        by_span.setdefault((queue.over.from_us, queue.over.to_us), []).append(queue)
        for position in range(len(queue.tasks)):
            if eager:
                queue.resting.append(position)
            else:
                queue.push(position)
        queue.wake()
    clocks = [_Clock(Advance(*times), members) for times, members in by_span.items()]
    for clock in clocks:
        for queue in clock.queues:
            clock.offer(queue)
    # The first pane closes as virtual time begins, so that the last one leaves time to execute what it made due.
    lead = min((q.group.pane_us / c.span_us for c in clocks if c.span_us for q in c.queues), default=1.0)
    executions: list[Execution] = []
    time = debt
    while time < budget or not executions:
        share = min(1.0, time / budget + lead) if time < budget else 1.0
        for clock in clocks:
            clock.advance(clock.over.from_us + int(clock.span_us * share), eager)
        chosen = _furthest_behind(clocks, eager)
        if chosen is not None:
            clock, queue = chosen
            taken = queue.take()
            executions.append(queue.execute(taken, budget - time))
            time += executions[-1].cost
            for position in taken:
                if not eager or queue.may_run_early(queue.tasks[position]):
                    queue.push(position)
                else:
                    queue.resting.append(position)
            clock.offer(queue)
            continue
        coming = [(c, at) for c in clocks if (at := c.next_us(eager)) is not None]
        if time >= budget or not coming:
            break
        arrivals = [(((at - c.over.from_us) / c.span_us - lead) * budget, n) for n, (c, at) in enumerate(coming)]
        arrival, number = min(arrivals)
        time = max(time, arrival)
        clock, at = coming[number]
        clock.advance(at, eager)
    # An epoch's excess may use up the next budget, not those after it.
    return executions, min(max(0.0, time - budget), budget)


def _furthest_behind(clocks: Sequence[_Clock], eager: bool) -> tuple[_Clock, _Queue] | None:
    """The group whose first task has the least time until its deadline, or is furthest beyond it.

    Time is event time of the group's own watermark: with panes of one length that is the paper's order, a group of long
    panes does not wait for pane after pane to close, and streams of different years compare.
    """
    best: tuple[int, int, int] | None = None
    chosen = None
    for clock in clocks:
        first = clock.first()
        if first is not None and (eager or first[0] <= clock.now_us):
            key = (first[0] - clock.now_us, first[1], first[2])
            if best is None or key < best:
                best, chosen = key, (clock, clock.by_number[first[2]])
    return chosen
