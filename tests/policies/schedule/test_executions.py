"""Which executions an epoch gets: who goes first, who goes along, what is left, and nothing lost on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import plain, restored
from headrace.policies import (
    Advance,
    Costs,
    Execution,
    Group,
    Left,
    PeriodChoice,
    Plan,
    SchedulePolicy,
    ScheduleState,
    Served,
    SubGroup,
    TaskState,
    choose_periods,
    enter,
    plan_epoch,
)

PANE = 10
ONE_EACH = Costs(1, 0, 0)
POLICIES = [str(policy) for policy in SchedulePolicy]


def group(*subgroups: SubGroup, name: str = "g", pane_us: int = PANE, costs: Costs = ONE_EACH) -> Group:
    return Group(name, pane_us, costs, subgroups)


def plan(
    policy: str,
    groups: Group | list[Group],
    progress: tuple[int, int] | Mapping[str, Advance],
    budget: float | None,
    state: ScheduleState | None = None,
    eager: bool = False,
) -> Plan:
    groups = groups if isinstance(groups, list) else [groups]
    chosen = SchedulePolicy(policy)
    choices = {g.name: choose_periods(chosen, g.subgroups, g.costs) for g in groups}
    if isinstance(progress, tuple):
        progress = {g.name: Advance(*progress) for g in groups}
    return plan_epoch(chosen, groups, choices, progress, state or ScheduleState(), budget, eager=eager)


def spell(executions: tuple[Execution, ...]) -> list[str]:
    """`a+b@20`: a and b together at 20; `a@20,30`: at two ends."""
    words = []
    for e in executions:
        at = sorted({served.ends_us for served in e.served})
        parts = ["+".join(served.subgroup for served in e.served if served.ends_us == ends) for ends in at]
        words.append(" ".join(f"{who}@{','.join(map(str, ends))}" for who, ends in zip(parts, at, strict=True)))
    return words


# Sub-groups of one group with the given times until their deadlines, in panes, and periods that nobody shortens: who is
# executed together, and in which order?
@pytest.mark.parametrize(
    ("policy", "d", "wanted"),
    [
        pytest.param("none", {"a": 0, "b": 0}, ["a", "b"], id="no sharing: each alone, even if due together"),
        pytest.param("none", {"a": -1, "b": -2}, ["b", "a"], id="no sharing: the latest first"),
        pytest.param("conservative", {"a": 0, "b": 0}, ["a+b"], id="conservative: together if due together"),
        pytest.param("conservative", {"a": -1, "b": -1, "c": 0}, ["a+b", "c"], id="conservative: also if late alike"),
        pytest.param("conservative", {"a": -2, "b": -1}, ["a", "b"], id="conservative: not if late by different times"),
        pytest.param("conservative", {"a": 0, "b": 1}, ["a"], id="conservative: nothing before it is due"),
        pytest.param("hybrid", {"a": 0, "b": 0, "c": 1}, ["a+b"], id="hybrid: together if due together"),
        pytest.param("hybrid", {"a": -2, "b": -1, "c": 0}, ["a", "b", "c"], id="hybrid: not if late differently"),
        pytest.param("hybrid-late", {"a": -2, "b": -1, "c": 0}, ["a+b", "c"], id="late: all that are late together"),
        pytest.param("hybrid-late", {"a": 0, "b": 0, "c": 1}, ["a+b"], id="late: as hybrid if nothing is late"),
        pytest.param("hybrid-late", {"a": -1, "b": 0}, ["a", "b"], id="late: what is pending is not late"),
        pytest.param("hybrid-late-pending", {"a": -2, "b": -1, "c": 0}, ["a+b+c"], id="late-pending: all at once"),
        pytest.param("hybrid-late-pending", {"a": 0, "b": 0, "c": 1}, ["a+b"], id="late-pending: nothing late"),
        pytest.param("hybrid-late-pending", {"a": -1, "b": 1}, ["a"], id="late-pending: nothing before it is due"),
        pytest.param("hybrid-late-pending", {"a": 0, "b": -3}, ["b+a"], id="late-pending: the latest is named first"),
    ],
)
def test_who_is_executed_with_whom(policy: str, d: dict[str, int], wanted: list[str]):
    subgroups = [SubGroup(name, 100 + n, 1 + n, answers=1) for n, name in enumerate(d)]
    now = 1000 * PANE
    tasks = {s.name: TaskState(now + d[s.name] * PANE, now - 50 * PANE) for s in subgroups}
    dear_answers = group(*subgroups, costs=Costs(0, 0, 1))
    found = plan(policy, dear_answers, (now, now), 1000, ScheduleState({"g": tasks}))
    assert ["+".join(e.subgroups) for e in found.executions] == wanted
    assert all(e.end_us == now for e in found.executions)
    assert not found.left


def test_aggressive_is_one_task_at_the_shortest_period():
    found = plan("aggressive", group(SubGroup("a", 2, 10), SubGroup("b", 3, 15), SubGroup("c", 5, 30)), (0, 60), None)
    assert spell(found.executions) == ["a+b+c@20", "a+b+c@40", "a+b+c@60"]


def test_conservative_shares_where_periods_meet():
    #   panes   10  20  30  40  50  60
    #   a (2)       x       x       x
    #   b (3)           x           x
    found = plan("conservative", group(SubGroup("a", 2, 10), SubGroup("b", 3, 15)), (0, 60), None)
    assert spell(found.executions) == ["a@20", "b@30", "a@40", "a+b@60"]
    assert plan("conservative", group(SubGroup("a", 2, 10), SubGroup("b", 3, 15)), (0, 60), 100).executions == (
        found.executions
    ), "with time enough the budget changes nothing"


@pytest.mark.parametrize(
    ("priorities", "first"),
    [
        pytest.param({"g": 0, "h": 0}, "g", id="of equals the first group goes first"),
        pytest.param({"g": 0, "h": 1}, "h", id="of two with one deadline the higher priority"),
        pytest.param({"g": 2, "h": 1}, "g", id="whatever their order"),
    ],
)
def test_priorities_break_ties(priorities: dict[str, int], first: str):
    groups = [group(SubGroup("a", 2, 1, priority=p), name=name) for name, p in priorities.items()]
    found = plan("hybrid-late-pending", groups, (0, 20), 0.5)
    assert [e.group for e in found.executions] == [first]
    assert [left.group for left in found.left] == [name for name in priorities if name != first]


def test_a_deadline_comes_before_a_priority():
    state = ScheduleState({"g": {"a": TaskState(10, 0)}, "h": {"a": TaskState(20, 0)}})
    groups = [group(SubGroup("a", 9, 1), name="g"), group(SubGroup("a", 9, 1, priority=9), name="h")]
    assert [e.group for e in plan("hybrid", groups, (20, 20), 5, state).executions] == ["g", "h"]


def test_what_has_no_room_is_executed_later_at_the_newest_pane():
    lone = group(SubGroup("a", 2, 1), SubGroup("b", 3, 2), costs=Costs(0, 0, 1))
    # An execution takes as long as two panes take to close.
    #   panes   10  20  30  40  50  60
    #   time     0   1   2   3   4   5  6
    #   a            x---x                  due at 20, next at 40
    #   b                    x---x          due at 30, but a is busy until 3 (pane 40), next at 70
    #   a                            x---x  due at 40, executed at 60, two panes late
    slow = replace(lone, costs=Costs(2, 0, 0))
    found = plan("none", slow, (0, 60), 6)
    assert found.executions == (
        Execution("g", 20, (Served("a", (20,), 0),), 2),
        Execution("g", 40, (Served("b", (40,), 1),), 2),
        Execution("g", 60, (Served("a", (60,), 2),), 2),
    )
    assert found.left == ()
    assert found.state.tasks == {"g": {"a": TaskState(80, 60), "b": TaskState(70, 40)}}
    assert found.state.debt_us == 1_000_000, "the last one ended one beyond the budget"
    assert found.cost == 6
    assert found.reason == "none: 3 sub-groups in 3 executions for 6 of 6, 0 left due"


def test_something_is_executed_in_every_epoch_and_the_rest_stays_due():
    many = [group(SubGroup("a", 1, 1), name=f"g{n}", costs=Costs(50, 0, 0)) for n in range(3)]
    state, order, left = ScheduleState(), [], []
    for epoch in range(6):
        found = plan("hybrid", many, (epoch * PANE, (epoch + 1) * PANE), 1, state)
        state = found.state
        order += [e.group for e in found.executions]
        left.append(found.left)
    assert order == ["g0", "g1", "g2", "g0", "g1", "g2"], "each in its turn"
    assert left[0] == (Left("g1", "a", 0), Left("g2", "a", 0))
    assert left[1] == (Left("g0", "a", 0), Left("g2", "a", 1))


def test_a_group_that_has_not_begun_is_left_alone():
    state = ScheduleState({"h": {"a": TaskState(40, 20)}, "gone": {"a": TaskState(40, 20)}})
    groups = [group(SubGroup("a", 2, 1)), group(SubGroup("a", 2, 1), name="h")]
    found = plan("hybrid", groups, {"g": Advance(0, 20)}, None, state)
    assert found.state.tasks == {"g": {"a": TaskState(40, 20)}, "h": {"a": TaskState(40, 20)}}


def test_groups_with_panes_of_different_lengths_are_compared_in_event_time():
    # h's panes take ten of g's. At 110 both have missed a deadline, h's is the older one.
    g, h = group(SubGroup("a", 1, 1)), group(SubGroup("a", 1, 1), name="h", pane_us=100)
    state = ScheduleState({"g": {"a": TaskState(110, 100)}, "h": {"a": TaskState(100, 0)}})
    found = plan("hybrid", [g, h], (115, 119), 10, state)
    assert [(e.group, e.end_us) for e in found.executions] == [("h", 100), ("g", 110)]


def test_streams_of_different_years_share_the_budget():
    g, h = group(SubGroup("a", 1, 1)), group(SubGroup("a", 1, 1), name="h")
    found = plan("hybrid", [g, h], {"g": Advance(0, 40), "h": Advance(10**12, 10**12 + 40)}, 8)
    assert [e.group for e in found.executions] == ["g", "h"] * 4


def test_streams_of_different_years_compare_by_how_far_each_is_behind_its_own_watermark():
    later = 10**12
    g, h = group(SubGroup("a", 9, 1)), group(SubGroup("a", 9, 1), name="h")
    state = ScheduleState({"g": {"a": TaskState(90, 0)}, "h": {"a": TaskState(later + 50, later)}})
    progress = {"g": Advance(100, 100), "h": Advance(later + 100, later + 100)}
    assert [e.group for e in plan("hybrid", [g, h], progress, 5, state).executions] == ["h", "g"]


def test_what_a_budget_left_late_is_answered_once_when_the_limit_is_lifted():
    state = ScheduleState({"g": {"a": TaskState(20, 0)}})
    found = plan("hybrid", group(SubGroup("a", 2, 1)), (95, 125), None, state)
    assert found.executions[0] == Execution("g", 90, (Served("a", (90,), 7),), 1)
    assert spell(found.executions) == ["a@90", "a@110"]


def test_a_new_sub_group_is_due_at_multiples_of_its_period():
    assert enter(group(), SubGroup("a", 3, 5), 3, after_us=37) == TaskState(60, 30)
    assert enter(group(), SubGroup("a", 3, 5), 3, after_us=60) == TaskState(90, 60)
    assert enter(group(), SubGroup("a", 3, 5, every=True, phase=1), 3, after_us=37) == TaskState(40, 30)
    assert enter(group(), SubGroup("a", 3, 5), 3, after_us=-37) == TaskState(-30, -40)


def test_a_shorter_period_counts_from_the_last_execution_and_meets_the_others():
    state = ScheduleState({"g": {"a": TaskState(60, 40), "b": TaskState(60, 30)}})
    found = plan("aggressive", group(SubGroup("a", 2, 1), SubGroup("b", 3, 2)), (40, 90), None, state)
    assert spell(found.executions) == ["a+b@50", "a+b@70", "a+b@90"]


@pytest.mark.parametrize(
    ("policy", "budget", "wanted"),
    [
        pytest.param("hybrid", None, ["w@40", "w@70", "w@100", "w+p@130"], id="unlimited: each end for itself"),
        pytest.param("hybrid", 100, ["w@40,70,100,130", "p@130"], id="what is late for different times is not shared"),
        pytest.param("hybrid-late-pending", 100, ["w@40,70,100,130 p@130"], id="but with late-pending"),
        pytest.param("hybrid", 3, ["w@40,70"], id="as many ends as there is room for"),
        pytest.param("hybrid", 0, ["w@40"], id="one at least"),
    ],
)
def test_aligned_windows_are_answered_at_every_end(policy: str, budget: float | None, wanted: list[str]):
    #   ends   10 + n * 30: 40, 70, 100, 130      missed since 10
    aligned, paper = SubGroup("w", 3, 5, every=True, phase=1), SubGroup("p", 12, 5)
    state = ScheduleState({"g": {"w": TaskState(40, 10), "p": TaskState(130, 120)}})
    found = plan(policy, group(aligned, paper, costs=Costs(1, 0, 1)), (130, 130), budget, state)
    assert spell(found.executions) == wanted


def test_ends_that_cost_less_than_an_execution_are_not_put_off():
    dear = group(SubGroup("w", 1, 1, every=True), costs=Costs(10, 0, 1))
    found = plan("hybrid", dear, (300, 300), 0, ScheduleState({"g": {"w": TaskState(110, 100)}}))
    assert spell(found.executions) == ["w@" + ",".join(str(end) for end in range(110, 201, 10))], "ten, not one"


def test_a_sub_group_that_begins_later_waits_although_others_of_its_task_are_executed():
    both = group(SubGroup("a", 2, 1), SubGroup("b", 3, 2))
    later = enter(both, both.subgroups[1], 2, after_us=50)
    found = plan("aggressive", both, (0, 80), None, ScheduleState({"g": {"b": later}}))
    assert spell(found.executions) == ["a@20", "a@40", "a+b@60", "a+b@80"]
    later = enter(both, both.subgroups[1], 2, after_us=70)
    first = plan("aggressive", both, (0, 40), None, ScheduleState({"g": {"b": later}}))
    apart = plan("conservative", both, (40, 100), None, first.state)
    assert spell(apart.executions) == ["a@60", "a@80", "a+b@100"], "on its own it is due a period after its beginning"


def test_the_ends_of_one_execution_are_paid_one_by_one_and_its_fixed_cost_once():
    aligned = group(SubGroup("w", 1, 5, 2, every=True), SubGroup("p", 9, 7, 3), costs=Costs(100, 1, 0.1))
    state = ScheduleState({"g": {"w": TaskState(10, 0), "p": TaskState(10, 0)}})
    (execution,) = plan("hybrid-late-pending", aligned, (30, 30), 1000, state).executions
    assert execution.served == (Served("w", (10, 20, 30), 2), Served("p", (30,), 0))
    assert execution.cost == pytest.approx(100 + (5 + 5 + 7) + 0.1 * (3 * 2 + 3)), "p's window covers w's at 30"


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [
        pytest.param(3, ["a@10", "b@10", "a@20", "b@20", "a@30", "b@30"], id="an idle processor executes early"),
        # Deadlines of a and b: 50, 70; after a@10 60, 70; after a@20 both 70.
        pytest.param(1.5, ["a@10", "a@20", "a+b@30"], id="what is nearest to its deadline first"),
    ],
)
def test_eager(budget: float, wanted: list[str]):
    early = group(SubGroup("a", 5, 1), SubGroup("b", 7, 2), SubGroup("w", 4, 1, every=True), costs=Costs(0, 0, 0.5))
    found = plan("conservative", early, (0, 30), budget, eager=True)
    assert spell(found.executions) == wanted, "each once per pane, aligned windows not at all before 40"


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(lambda: plan("hybrid", group(), (0, 10), None, eager=True), id="an endless schedule"),
        pytest.param(lambda: plan("hybrid", group(), (0, 10), -1), id="a negative budget"),
        pytest.param(lambda: Advance(10, 0), id="a watermark that goes back"),
        pytest.param(lambda: group(pane_us=0), id="panes without length"),
        pytest.param(lambda: group(SubGroup("a", 1, 1), SubGroup("a", 2, 1)), id="two of one name"),
    ],
)
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"."):
        wrong()


def test_no_budget_at_all_is_still_progress():
    found = plan("hybrid", group(SubGroup("a", 1, 1)), (0, 30), 0)
    assert spell(found.executions) == ["a@30"]


@st.composite
def subgroup_sets(draw: st.DrawFn) -> tuple[SubGroup, ...]:
    found = []
    for n, period in enumerate(draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))):
        every = draw(st.booleans())
        phase = draw(st.integers(0, period - 1)) if every else 0
        panes, priority = draw(st.integers(1, 20)), draw(st.integers(0, 2))
        found.append(SubGroup(f"s{n}", period, panes, draw(st.integers(1, 3)), priority, every, phase))
    return tuple(found)


worlds = st.lists(
    st.tuples(subgroup_sets(), st.sampled_from([3, 10]), st.sampled_from([Costs(1, 0.1, 0.1), Costs(0, 1, 0)])),
    min_size=1,
    max_size=3,
).map(lambda items: [Group(f"g{n}", pane, costs, subs) for n, (subs, pane, costs) in enumerate(items)])
steps = st.lists(st.integers(0, 120), min_size=1, max_size=5)
budgets = st.lists(st.sampled_from([0.0, 0.5, 3.0, 20.0, 200.0, None]), min_size=5, max_size=5)
policies = st.sampled_from(POLICIES)


def epochs(policy: str, groups: list[Group], start: int, moves: list[int], limits: list[float | None]) -> list[Plan]:
    state, now, plans = ScheduleState(), start, []
    for move, limit in zip(moves, limits, strict=False):
        plans.append(plan(policy, groups, (now, now + move), limit, state))
        # What is committed with an epoch is JSON.
        state, now = restored(ScheduleState, json.loads(json.dumps(plain(plans[-1].state)))), now + move
        assert state == plans[-1].state
    return plans


def ends_of(plans: list[Plan], g: Group, s: SubGroup) -> list[int]:
    return [
        end
        for found in plans
        for e in found.executions
        if e.group == g.name
        for served in e.served
        if served.subgroup == s.name
        for end in served.ends_us
    ]


def aligned_ends(g: Group, s: SubGroup, after: int, to: int) -> list[int]:
    return [end for end in range(after + 1, to + 1) if (end - s.phase * g.pane_us) % (s.period * g.pane_us) == 0]


@given(policies, worlds, st.integers(-50, 50), steps)
@settings(max_examples=80)
def test_without_a_limit_no_gap_exceeds_a_period(policy: str, groups: list[Group], start: int, moves: list[int]):
    plans = epochs(policy, groups, start, moves, [None] * 5)
    now = start + sum(moves)
    assert not any(found.left for found in plans)
    assert all(served.lateness_panes == 0 for found in plans for e in found.executions for served in e.served)
    for g in groups:
        for s in g.subgroups:
            ends = ends_of(plans, g, s)
            if s.every:
                assert ends == aligned_ends(g, s, start, now), "each end once, in order"
            else:
                begin, newest = start // g.pane_us * g.pane_us, now // g.pane_us * g.pane_us
                gaps = [after - before for before, after in pairwise([begin, *ends, newest])]
                assert all(0 <= gap <= s.period * g.pane_us for gap in gaps)
                assert all(end % g.pane_us == 0 for end in ends)


@given(policies, worlds, st.integers(-50, 50), steps, budgets)
@settings(max_examples=80)
def test_with_any_budgets_nothing_is_lost(
    policy: str, groups: list[Group], start: int, moves: list[int], limits: list[float | None]
):
    plans = epochs(policy, groups, start, moves, limits)
    now = start + sum(moves[: len(limits)])
    final = plan(policy, groups, (now, now), None, plans[-1].state)
    for g in groups:
        for s in g.subgroups:
            if s.every:
                assert ends_of([*plans, final], g, s) == aligned_ends(g, s, start, now)
            else:
                ends = ends_of([*plans, final], g, s)
                assert all(before < after for before, after in pairwise(ends)), "never twice as of one pane"
    assert not final.left
    for before, after in pairwise([*plans, final]):
        for name, tasks in before.state.tasks.items():
            for sub, task in tasks.items():
                later = after.state.tasks[name][sub]
                assert later.deadline_us >= task.deadline_us
                assert later.last_us >= task.last_us
    for found in plans:
        assert found.executions or not found.left, "if something is due, something is executed"
        for e in found.executions:
            assert all(end <= e.end_us <= now for served in e.served for end in served.ends_us)
    assert epochs(policy, groups, start, moves, limits) == plans, "the same inputs give the same plans"


@given(policies, worlds, steps, st.booleans())
@settings(max_examples=60)
def test_budgets_are_kept_over_time(policy: str, groups: list[Group], moves: list[int], eager: bool):
    state, now, used, dearest = ScheduleState(), 0, 0.0, 0.0
    for move in moves:
        found = plan(policy, groups, (now, now + move), 20, state, eager)
        state, now, used = found.state, now + move, used + found.cost
        dearest = max([dearest, *(e.cost for e in found.executions)])
    # Debts up to a budget are paid back; one execution that is dearer than the rest of the budget may go beyond.
    assert used <= 20 * len(moves) + max(dearest, 0) * (len(moves) if dearest > 20 else 1) + 1e-6


@given(worlds, steps, budgets, policies)
@settings(max_examples=60)
def test_eager_executes_none_twice_without_a_new_pane(
    groups: list[Group], moves: list[int], limits: list[float | None], policy: str
):
    state, now, plans = ScheduleState(), 0, []
    for move, limit in zip(moves, limits, strict=False):
        plans.append(plan(policy, groups, (now, now + move), 50 if limit is None else limit, state, eager=True))
        state, now = plans[-1].state, now + move
    final = plan(policy, groups, (now, now), None, state)
    for g in groups:
        for s in g.subgroups:
            ends = ends_of(plans, g, s)
            assert all(before < after for before, after in pairwise(ends))
            if s.every:
                assert ends + ends_of([final], g, s) == aligned_ends(g, s, 0, now), "aligned windows are never early"


def test_executions_of_an_epoch_share_one_scan_where_the_engine_does() -> None:
    """Windows of 8 and 4 panes, answered at 10 (both) and at 5 (the second); to begin costs 100, a pane or answer 1."""
    subgroups = (SubGroup("a", 10, 8), SubGroup("b", 5, 4))
    choice = {"g": PeriodChoice(SchedulePolicy.CONSERVATIVE, {"a": 10, "b": 5}, 0, 0, 0, "given")}
    costs = Costs(100, 1, 1)

    def cost(one_scan: bool) -> list[float]:
        group = Group("g", 1, costs, subgroups, one_scan)
        plan = plan_epoch(SchedulePolicy.CONSERVATIVE, [group], choice, {"g": Advance(0, 10)}, ScheduleState(), None)
        return [execution.cost for execution in plan.executions]

    # Each for itself: 100 + 4 + 1 at 5, 100 + 8 + 2 at 10.
    assert cost(one_scan=False) == [105, 110]
    # The four panes before 5 are scanned once; the second execution begins nothing and reaches five more.
    assert cost(one_scan=True) == [105, 7]
