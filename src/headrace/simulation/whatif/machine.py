"""What things take on the machines of a run: read out of its record, or guessed, with every guess said.

Each step of an epoch is a line over the work in it. The work is counted by the costs that the policies have learned
(of rows read and kept, of executions), and for joins by those that they take for granted; the last epochs of the record
say what an epoch really took for it. So a cost that the policies know only roughly is right on average here.

    absorb   seconds over the task-seconds of its rows              answers  seconds over those of executions and rows
    joins    seconds of a host over the rows it got, holds, pairs   keyed    busy seconds of bins over their rows
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from headrace.model import JoinMeasures, KeyedMeasures, edge_into
from headrace.planning import JoinPlan, Recorded, RecordedEpoch, Schedule, Workload
from headrace.planning.rates import selectivity
from headrace.planning.scheduling import GroupSize
from headrace.policies.joins.diffusion import HELD_S, RECEIVED_S
from headrace.policies.shedding import RowCosts
from headrace.policies.shedding.line import Line
from headrace.units import SECOND_US

__all__ = ["PAIR_S", "ROW_S", "Joined", "Keyed", "Machine", "Straight", "guessed_machine", "measured_machine", "shares"]

# Of what nothing was measured, on an ordinary core: a row that is read, one that an edge keeps, one whose results are
# made in the answer step, a pair.
READ_S, KEEP_S, ROW_S, PAIR_S = 1e-6, 1e-6, 1e-6, 4e-7
# What an epoch takes without rows, half of it Spark's own between two of them; and tasks, without rows.
REST_S, GAP_S, STEP_S = 0.05, 0.25, 0.1
# A bin's work on a row, and bytes of state that are installed in a second.
KEYED_ROW_S, INSTALLED_PER_S = 5e-6, 100e6
# Of all pairs that could meet; a join by equality of a thousand values has so many.
MATCHING = 1e-3
# The first epochs of a run are slow for reasons of their own.
COLD_EPOCHS, LEAST_EPOCHS = 4, 6
# Epochs that differ less than this in their rows do not tell what a row takes from what an epoch does.
ALIKE = 1.1
# Epochs of one run are never known better or worse than this, relatively.
LEAST_NOISE, MOST_NOISE = 0.02, 0.2


@dataclass(frozen=True, slots=True)
class Straight:
    """Seconds over some amount of work: a fixed part, and one per unit."""

    fixed_s: float
    per_unit: float

    def of(self, work: float, faster: float = 1.0) -> float:
        """Seconds of some work on machines that are so many times faster; what is fixed is Spark's, and stays."""
        return self.fixed_s + self.per_unit * work / faster


@dataclass(frozen=True, slots=True)
class Joined:
    """A join: seconds of a host over what it does, counted in seconds, and the part of possible pairs that match."""

    host: Straight
    matching: float


@dataclass(frozen=True, slots=True)
class Keyed:
    """A row window or a function: seconds of a bin per row, and of the step beside its busiest bin."""

    row_s: float
    step_s: float


@dataclass(frozen=True)
class Machine:
    """What epochs take with so many hosts. `rows` and `schedule` count work; `share` is by edge the part of its
    stream's rows that goes along it; `rates` are rows per second by stream when all this was measured."""

    hosts: int
    bins: int
    rates: Mapping[str, float]
    rows: RowCosts
    share: Mapping[str, float]
    schedule: Schedule
    absorb: Straight
    answers: Straight
    joins: Mapping[str, Joined]
    keyed: Mapping[str, Keyed]
    rest_s: float
    gap_s: float
    noise: float
    guesses: tuple[str, ...] = ()

    def task_s(self, rows: Mapping[str, float], kept: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """Task-seconds by stream for its rows, and by edge for those that it keeps."""
        read = {s: _at(self.rows.read.get(s), READ_S, n) for s, n in rows.items() if n > 0}
        return read, {edge: _at(self.rows.keep.get(edge), KEEP_S, n) for edge, n in kept.items() if n > 0}

    def executed_s(self, scanned: float, answered: float) -> float:
        """Seconds that an execution is expected to take."""
        costs = self.schedule.model.costs
        return costs.fixed + costs.per_pane * scanned + costs.per_answer * answered


def _at(line: Line | None, guess: float, rows: float) -> float:
    return guess * rows if line is None or not line.samples else line.predict(rows)


def edges_in(workload: Workload, streams: Iterable[str]) -> dict[str, tuple[str, str | None]]:
    """By edge out of these streams its stream and its filter."""
    declared, found = set(streams), dict[str, tuple[str, str | None]]()
    for id_, kept in workload.kept.items():
        found |= {edge_into(id_, feed.stream): (feed.stream, feed.where) for feed in kept.synopsis.feeds}
    for store in workload.stores:
        found |= {edge_into(store.id, feed.stream): (feed.stream, feed.where) for feed in store.feeds}
    return {edge: each for edge, each in found.items() if each[0] in declared}


def guessed_machine(workload: Workload, rates: Mapping[str, float], hosts: int) -> Machine:
    """What is taken for granted where nothing has run."""
    edges = edges_in(workload, rates)
    guesses = [
        f"nothing was measured: a row takes {READ_S * 1e6:g} us to read and {KEEP_S * 1e6:g} us on each edge, an epoch "
        f"{REST_S + GAP_S + 2 * STEP_S:.2g} s without rows; a run's checkpoint (--from) says what they really take"
    ]
    if any(where is not None for _, where in edges.values()):
        guesses.append("filters let through what a textbook takes them to: a tenth for a value, a third for a bound")
    joins = {name: plan for name, plan in workload.flows.items() if isinstance(plan, JoinPlan)}
    if joins:
        guesses.append(f"of two rows that a join's windows bring together, {MATCHING:.1%} match")
    return Machine(
        hosts,
        max(1, hosts // 2),
        rates,
        RowCosts(),
        {edge: selectivity(where) for edge, (_, where) in edges.items()},
        Schedule(),
        Straight(STEP_S, 1 / hosts),
        Straight(STEP_S, 1 / hosts),
        {name: Joined(Straight(0.0, 1.0), MATCHING) for name in joins},
        {name: Keyed(KEYED_ROW_S, STEP_S) for name in workload.flows.keys() - joins.keys()},
        REST_S,
        GAP_S,
        LEAST_NOISE,
        tuple(guesses),
    )


@dataclass
class _Reading:
    """A record while it is read, and the guesses where it says nothing."""

    recorded: Recorded
    workload: Workload
    guessed: Machine
    guesses: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        epochs = [e for e in self.recorded.epochs if e.decision.flush is None and not e.observed.replay]
        warm = [e for e in epochs if e.decision.epoch >= COLD_EPOCHS]
        self.epochs: Sequence[RecordedEpoch] = warm if len(warm) >= LEAST_EPOCHS else epochs
        if len(self.epochs) < LEAST_EPOCHS:
            self.guesses.append(f"only {len(self.epochs)} epochs are recorded, and the first of a run are slow")
        rows = [sum(e.observed.rows.values()) for e in self.epochs]
        if rows and max(rows) < ALIKE * min(rows):
            self.guesses.append("all epochs had about as many rows: what rows take is told from the rest by older ones")

    def fitted(self, samples: Iterable[tuple[float, float]], otherwise: Straight, per_unit: float) -> Straight:
        """The line through amounts of work and seconds; where work is always the same, one that rises so steeply."""
        line, pairs = Line(), list(samples)
        for work, seconds in pairs:
            line = line.learn(work, seconds)
        if not pairs:
            return otherwise
        least, most = min(work for work, _ in pairs), max(work for work, _ in pairs)
        if most >= ALIKE * least:
            return Straight(line.fixed, line.per_row)
        works, seconds = sum(work for work, _ in pairs) / len(pairs), sum(s for _, s in pairs) / len(pairs)
        slope = min(per_unit, seconds / works) if works else 0.0
        return Straight(seconds - slope * works, slope)

    def mean(self, values: Iterable[float], otherwise: float) -> float:
        """The middle value: one epoch may have been slow for reasons of its own."""
        found = sorted(values)
        return found[len(found) // 2] if found else otherwise


def measured_machine(recorded: Recorded, workload: Workload, rates: Mapping[str, float], trigger_s: float) -> Machine:
    """What things took in the last epochs of a run."""
    known = recorded.last.shedding.costs
    guessed = guessed_machine(workload, rates, recorded.hosts)
    reading = _Reading(recorded, workload, guessed)
    share = {edge: known.share_of(edge) if edge in known.selectivity else s for edge, s in guessed.share.items()}
    strange = sorted(edge for edge in share if edge not in known.keep)
    if strange:
        reading.guesses.append(f"{len(strange)} of {len(share)} edges were never measured: their rows cost a guess")
    machine = replace(guessed, bins=recorded.bins, rows=known, share=share, schedule=recorded.last.schedule, guesses=())
    machine = replace(machine, joins=_joins(reading, machine), keyed=_keyed(reading))
    steps = [epoch.observed.steps_s for epoch in reading.epochs]
    rest = [
        e.observed.seconds - s.get("absorb", 0.0) - s.get("answer", 0.0)
        for e, s in zip(reading.epochs, steps, strict=True)
    ]
    absorb = reading.fitted(
        [(_task_s(machine, e), s["absorb"]) for e, s in zip(reading.epochs, steps, strict=True) if "absorb" in s],
        guessed.absorb,
        known.epoch.per_row or guessed.absorb.per_unit,
    )
    answers = reading.fitted(
        [(_answer_work(machine, workload, e), _answer_s(e)) for e in reading.epochs], guessed.answers, 1.0
    )
    return replace(
        machine,
        absorb=absorb,
        answers=answers,
        rest_s=max(0.0, reading.mean(rest, REST_S)),
        gap_s=_gap_s(reading, trigger_s),
        noise=_noise(reading, machine, absorb),
        guesses=tuple(reading.guesses),
    )


def _task_s(machine: Machine, epoch: RecordedEpoch) -> float:
    rows = {stream: float(n) for stream, n in epoch.observed.rows.items()}
    kept = {}
    for edge, share in machine.share.items():
        offered = rows.get(edge.partition(">")[0], 0.0) * share
        account = epoch.observed.edges.get(edge)
        kept[edge] = offered - (0 if account is None else account.shed)
    read, keep = machine.task_s(rows, kept)
    return sum(read.values()) + sum(keep.values())


def _answer_s(epoch: RecordedEpoch) -> float:
    """Seconds of the answer step without joins and keyed state that say how long they took."""
    found = epoch.observed.steps_s.get("answer", 0.0)
    for each in epoch.observed.flows.values():
        found -= max(each.seconds, default=0.0) if isinstance(each, JoinMeasures) else each.step_s
    return max(0.0, found)


def _answer_work(machine: Machine, workload: Workload, epoch: RecordedEpoch) -> float:
    """Seconds that an epoch's executions should have taken, and a little for every row."""
    found = ROW_S * sum(epoch.observed.rows.values()) if workload.flows else 0.0
    for main, names in workload.groups.items():
        due = {name: epoch.observed.due[name] for name in names if name in epoch.observed.due}
        if due:
            windows = {name: workload.plans[name].aggregate.window for name in due}
            reach_us = max(w.size_us + (due[name] - 1) * w.slide_us for name, w in windows.items())
            panes = reach_us / min(workload.kept[id_].pane_us for id_ in workload.sources_of(next(iter(due))))
            known = machine.schedule.measured.get(main, GroupSize())
            found += machine.executed_s(panes * known.rows_per_pane, sum(due.values()) * known.groups_per_window)
    return found


def _joins(reading: _Reading, machine: Machine) -> dict[str, Joined]:
    found = {}
    for name, guess in machine.joins.items():
        samples, could, made = list[tuple[float, float]](), 0.0, 0
        plan = reading.workload.flows[name]
        assert isinstance(plan, JoinPlan)
        for epoch in reading.epochs:
            each = epoch.observed.flows.get(name)
            if isinstance(each, JoinMeasures):
                got = sum(map(sum, each.received))
                for received, held, seconds in zip(each.received, each.held, each.seconds, strict=True):
                    pairs = each.pairs * sum(received) / got if got else 0.0
                    samples.append((RECEIVED_S * sum(received) + HELD_S * sum(held) + PAIR_S * pairs, seconds))
                could += _possible(plan, machine, epoch)
                made += each.pairs
        if not samples:
            reading.guesses.append(f"'{name}' has no account of its hosts: its time is part of the answers'")
        matching = made / could if could else guess.matching
        found[name] = Joined(reading.fitted(samples, Straight(0.0, 0.0), float("inf")), matching)
    return found


def _possible(plan: JoinPlan, machine: Machine, epoch: RecordedEpoch) -> float:
    """Pairs that an epoch's rows could make with those in the other side's window, were all to match."""
    found = 0.0
    for side, other in (("left", "right"), ("right", "left")):
        window_s = (plan.join.right if side == "left" else plan.join.left).window.size_us / SECOND_US
        came = sum(epoch.observed.rows.get(s, 0) * p for s, p in shares(plan, side, machine))
        held = window_s * sum(machine.rates.get(s, 0.0) * p for s, p in shares(plan, other, machine))
        found += came * held
    return found


def shares(plan: JoinPlan, side: str, machine: Machine) -> list[tuple[str, float]]:
    """By stream of one side the part of its rows that the side takes."""
    store = plan.store(side)
    return [(feed.stream, machine.share.get(edge_into(store.id, feed.stream), 1.0)) for feed in store.feeds]


def _keyed(reading: _Reading) -> dict[str, Keyed]:
    found = {}
    for name, guess in reading.guessed.keyed.items():
        mine = [m for e in reading.epochs if isinstance(m := e.observed.flows.get(name), KeyedMeasures)]
        rows, busy = sum(m.rows for m in mine), sum(sum(m.busy_s) for m in mine)
        step = reading.mean([m.step_s - max(m.busy_s, default=0.0) for m in mine], guess.step_s)
        found[name] = Keyed(busy / rows if rows else guess.row_s, max(0.0, step))
    return found


def _gap_s(reading: _Reading, trigger_s: float) -> float:
    """From the end of one epoch to the admission of the next, where no trigger was waited for."""
    gaps, late = list[float](), list[float]()
    for before, after in pairwise(reading.epochs):
        if after.decision.epoch == before.decision.epoch + 1:
            wall_us = after.observed.wall_us - before.observed.wall_us
            gap = max(0.0, wall_us / SECOND_US - before.observed.seconds)
            gaps.append(gap)
            if before.observed.seconds > trigger_s:
                late.append(gap)
    if late:
        return reading.mean(late, GAP_S)
    # An epoch that waited for its trigger had at least the time that Spark needs.
    guess = min([GAP_S, *gaps])
    reading.guesses.append(f"epochs waited for their trigger: Spark is taken to need {guess:.2f} s between them")
    return guess


def _noise(reading: _Reading, machine: Machine, absorb: Straight) -> float:
    """How far an epoch's time is usually from what is expected, relatively."""
    off = [
        abs(e.observed.steps_s["absorb"] - absorb.of(_task_s(machine, e))) / max(e.observed.steps_s["absorb"], 1e-3)
        for e in reading.epochs
        if "absorb" in e.observed.steps_s
    ]
    return min(MOST_NOISE, max(LEAST_NOISE, reading.mean(off, LEAST_NOISE)))
