"""At which periods queries run as others come and go, and which windows of a query that has just come are due."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.language import bind_query, parse_schema
from headrace.model import Stream
from headrace.planning import Coverage, QueryTimes, Schedule, Scheduled, Workload, groups_of, plan_answer, share
from headrace.policies import Costs, StreamClock

S = 1_000_000
STREAM = Stream("r", parse_schema("ts TIMESTAMP, k STRING"), "ts")
SQL = "SELECT k, COUNT(*) AS n FROM r GROUP BY window(ts, '20 seconds'), k"


@pytest.mark.parametrize("budget_s", [None, 10.0, 1e-9])
@pytest.mark.parametrize(
    ("after_s", "at_once", "later"),
    [
        pytest.param(99, [100], [120, 140], id="the newest closed window, and what closes in the epoch"),
        pytest.param(119, [], [120, 140], id="only what closes in the epoch"),
        pytest.param(141, [], [], id="nothing yet"),
    ],
)
def test_a_query_that_has_just_come(after_s: int, at_once: list[int], later: list[int], budget_s: float | None) -> None:
    """Ends every 20 s; the watermark goes from 115 s to 150 s. What there is no time for is left, not lost."""
    scheduled = planned(after_s, 115, 150, budget_s, Schedule())
    due = ends_s(scheduled)
    assert due[: len(at_once)] == at_once
    put_off = [end for end in later if end not in due]
    assert due == [*at_once, *later[: len(later) - len(put_off)]]
    assert put_off == [] or "q" in scheduled.left
    assert put_off == [] or budget_s == 1e-9


@pytest.mark.parametrize(("budget_s", "due"), [(10.0, [80, 100, 120, 140]), (1e-9, [80])])
def test_windows_that_were_put_off_before_the_first_answer_come_later(budget_s: float, due: list[int]) -> None:
    """Ends 80 and 100 close when there is no time; in the next epoch they come first, in their order."""
    first = planned(79, 60, 115, 1e-9, Schedule())
    assert ends_s(first) == []
    second = planned(79, 115, 150, budget_s, Schedule(state=first.state))
    assert ends_s(second) == due


def workload_of(*windows: str) -> Workload:
    """Queries over the same rows with these windows, one group."""
    sqls = {f"q{i}": f"SELECT COUNT(*) AS n FROM r {window}" for i, window in enumerate(windows)}
    return share({name: plan_answer(bind_query(name, sql, {"r": STREAM})) for name, sql in sqls.items()}, (STREAM,))


def test_a_query_that_leaves_does_not_stretch_the_periods_of_others() -> None:
    """The first query makes panes 30 s long; without it they are 60 s, and the other still runs every 60 s."""
    schedule = Schedule()
    before = workload_of("[WINDOW 90 s SLIDE 60 s]", "[WINDOW 60 s SLIDE 60 s]")
    first = schedule.decide("hybrid", groups_of(before, before.plans, schedule), None, None)
    after = before.only(["q1"])
    then = schedule.decide("hybrid", groups_of(after, after.plans, schedule), None, first)
    for decision, workload in ((first, before), (then, after), (first, after)):
        assert Scheduled(decision, workload, schedule).window_of("q1").slide_us == 60 * S


@pytest.mark.parametrize("budget_s", [None, 10.0])
def test_a_decision_from_before_a_query_came_lets_it_run_at_its_own_period(budget_s: float | None) -> None:
    schedule = Schedule()
    old, new = (
        workload_of("[WINDOW 60 s SLIDE 60 s]"),
        workload_of("[WINDOW 60 s SLIDE 60 s]", "[WINDOW 60 s SLIDE 20 s]"),
    )
    decision = schedule.decide("hybrid", groups_of(old, old.plans, schedule), None, None)
    scheduled = Scheduled(replace(decision, budget_s=budget_s), new, schedule)
    clocks = [{"r": StreamClock(0, at * S, at * S, 0)} for at in (60, 120)]
    scheduled.plan({name: QueryTimes(60 * S, 120 * S) for name in new.plans}, *clocks, flush=False)
    assert [end // S for end in scheduled.due["q0"].ends] == [120]
    assert [end // S for end in scheduled.due["q1"].ends] == [80, 100, 120]


def ends_beside_another(select: str, before: Coverage | None = None) -> list[int]:
    """Ends of windows every 4 s beside a query with windows every 3 s, executed together where that gives answers."""
    sqls = {
        "q": f"SELECT {select} AS n FROM r [WINDOW 12 s SLIDE 4 s]",
        "other": "SELECT COUNT(*) AS n FROM r [WINDOW 9 s SLIDE 3 s]",
    }
    made = share({name: plan_answer(bind_query(name, sql, {"r": STREAM})) for name, sql in sqls.items()}, (STREAM,))
    known = {} if before is None else dict.fromkeys(made.kept, before)
    schedule = Schedule()
    decision = schedule.decide("aggressive", groups_of(made, made.plans, schedule, known), None, None)
    scheduled = Scheduled(decision, made, schedule, known)
    clocks = [{"r": StreamClock(0, at * S, at * S, 0)} for at in (12, 24)]
    scheduled.plan({name: QueryTimes(12 * S, 24 * S) for name in made.plans}, *clocks, flush=False)
    return ends_s(scheduled)


def test_windows_keep_their_own_ends_where_others_would_cut_a_pane() -> None:
    assert ends_beside_another("COUNT(*)") == [15, 18, 21, 24]
    # The values of k are kept in panes of 4 s.
    assert ends_beside_another("COUNT(DISTINCT k)") == [16, 20, 24]
    # The other query came at 12 s; until then all panes had 4 s.
    assert ends_beside_another("COUNT(*)", Coverage(panes=((4 * S, None), (1 * S, 12 * S)))) == [16, 20, 24]


@pytest.mark.parametrize(
    ("factors", "anew"),
    [
        pytest.param([1.5, 1.5, 1.5], True, id="a little more each time, more than twice in all"),
        pytest.param([1.5, 1 / 1.5, 1.5], False, id="up and down"),
    ],
)
def test_periods_are_chosen_anew_when_costs_are_no_longer_those_they_were_chosen_by(
    factors: list[float], anew: bool
) -> None:
    schedule, workload = Schedule(), workload_of("[WINDOW 10 min SLIDE 2 min]", "[WINDOW 30 min SLIDE 5 min]")
    (group,) = groups_of(workload, workload.plans, schedule)
    first = last = schedule.decide("hybrid", [group], None, None)
    for factor in factors:
        costs = group.costs
        group = replace(group, costs=Costs(costs.fixed * factor, costs.per_pane * factor, costs.per_answer * factor))
        last = schedule.decide("hybrid", [group], None, last)
        assert last.groups[0].costs_s[0] == group.costs.fixed
    assert (last.groups[0].chosen_by_s != first.groups[0].chosen_by_s) == anew


def planned(after_s: int, from_s: int, to_s: int, budget_s: float | None, schedule: Schedule) -> Scheduled:
    """One epoch of the query and of two others that go before it."""
    others = {name: SQL.replace("FROM r", f"FROM r WHERE k > '{name}'") for name in ("a", "b")}
    queries = [bind_query(name, sql, {"r": STREAM}, priority=5) for name, sql in others.items()]
    queries.append(bind_query("q", SQL, {"r": STREAM}))
    made = share({query.name: plan_answer(query) for query in queries}, (STREAM,))
    decision = schedule.decide("none", groups_of(made, list(made.plans), schedule), None, None)
    scheduled = Scheduled(replace(decision, budget_s=budget_s), made, schedule)
    before, after = (StreamClock(0, s * S, s * S, 0) for s in (from_s, to_s))
    times = {"q": QueryTimes(after_s * S, to_s * S, fresh=True)}
    times |= {name: QueryTimes(from_s * S, to_s * S) for name in others}
    scheduled.plan(times, {"r": before}, {"r": after}, flush=False)
    return scheduled


def ends_s(scheduled: Scheduled) -> list[int]:
    return [end // S for end in scheduled.due["q"].ends] if "q" in scheduled.due else []
