"""Which windows of a query that has just come are due."""

from __future__ import annotations

import pytest

from headrace.language import bind_query, parse_schema
from headrace.model import ScheduleDecision, Stream
from headrace.planning import QueryTimes, Schedule, Scheduled, Workload, groups_of, plan_answer, share
from headrace.policies import StreamClock

S = 1_000_000
STREAM = Stream("r", parse_schema("ts TIMESTAMP, k STRING"), "ts")
SQL = "SELECT k, COUNT(*) AS n FROM r GROUP BY window(ts, '20 seconds'), k"


def workload() -> Workload:
    return share({"q": plan_answer(bind_query("q", SQL, {"r": STREAM}))}, (STREAM,))


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
    made = workload()
    groups = groups_of(made, ["q"], Schedule())
    decision = Schedule().decide("none", groups, None, None)
    decision = ScheduleDecision(decision.policy, budget_s, decision.groups, "")
    scheduled = Scheduled(decision, made, Schedule())
    before, after = StreamClock(0, 115 * S, 115 * S, 0), StreamClock(0, 150 * S, 150 * S, 0)
    scheduled.plan({"q": QueryTimes(after_s * S, 150 * S, fresh=True)}, {"r": before}, {"r": after}, flush=False)
    due = [end // S for end in scheduled.due["q"].ends] if "q" in scheduled.due else []
    assert due[: len(at_once)] == at_once
    put_off = [end for end in later if end not in due]
    assert due == [*at_once, *later[: len(later) - len(put_off)]]
    if put_off:
        assert "q" in scheduled.left
    assert budget_s == 1e-9 or not put_off
