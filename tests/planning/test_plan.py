"""A query is cut into nodes; those that others read are stepped first, and a flush reaches through all of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.model import Pipeline, Query, Stream
from headrace.planning import AnswerPlan, JoinPlan, RowsPlan, Workload, ends_below, latest, plan_pipeline, streams_read
from headrace.policies import StreamClock

JOIN = "SELECT p.src AS src, g.ts AS ts FROM packets p [RANGE 10 s] JOIN flows g [RANGE 5 s] ON p.src = g.src"
COUNTS = f"SELECT src, COUNT(*) AS n FROM ({JOIN}) AS j GROUP BY window(j.ts, '1 minute'), src"
PEAK = f"SELECT MAX(n) AS n FROM ({COUNTS}) AS c [WINDOW 1 hour]"
RECENT = f"SELECT src, COUNT(*) AS n FROM ({JOIN}) AS j [PARTITION BY src ROWS 5]"
PLAIN = "SELECT src, SUM(length) AS n FROM packets [WINDOW 1 min] GROUP BY src"
SECOND = 1_000_000


@pytest.fixture(scope="module")
def workload_of(bind: Callable[..., Query], streams: dict[str, Stream]) -> Callable[..., Workload]:
    def made(**queries: str) -> Workload:
        bound = tuple(bind(sql, name) for name, sql in queries.items())
        workload, refused = plan_pipeline(Pipeline("p", tuple(streams.values()), bound))
        assert not refused
        return workload

    return made


def test_nodes_are_stepped_as_late_as_what_reads_them_allows(workload_of: Callable[..., Workload]) -> None:
    workload = workload_of(peak=PEAK, recent=RECENT, plain=PLAIN)
    rounds = [[type(workload.nodes[name]) for name in names] for names in workload.rounds]
    assert rounds == [[JoinPlan], [AnswerPlan, JoinPlan], [AnswerPlan, AnswerPlan, RowsPlan]]
    assert set(workload.rounds[-1]) == {"peak", "plain", "recent"}


def test_queries_without_others_below_have_one_round(workload_of: Callable[..., Workload]) -> None:
    assert workload_of(plain=PLAIN).rounds == (("plain",),)


def test_queries_share_what_is_below_them(workload_of: Callable[..., Workload]) -> None:
    workload = workload_of(peak=PEAK, least=PEAK.replace("MAX", "MIN"), plain=PLAIN)
    shared = [name for name in workload.nodes if name not in workload.queries]
    assert len(shared) == 2
    assert all(workload.queries_over(name) == ("peak", "least") for name in shared)
    assert workload.only(["least"]).nodes.keys() == {"least", *shared}
    assert workload.only(["plain"]).nodes.keys() == {"plain"}
    assert streams_read(workload.queries["peak"]) == ("packets", "flows")


def test_a_flush_brings_streams_past_the_windows_that_their_results_are_in(
    workload_of: Callable[..., Workload],
) -> None:
    workload = workload_of(peak=PEAK)
    pairs, counts = workload.derived
    clocks = dict.fromkeys(workload.derived, StreamClock())
    clocks |= {name: StreamClock(0, 70 * SECOND, 60 * SECOND) for name in ("packets", "flows")}
    late = latest(workload, clocks)
    assert late[pairs].last_us == 70 * SECOND
    assert late[counts].last_us == 120 * SECOND - 1, "the answer about the last pair is dated just before its end"
    # A pair that is dated by one of its rows is behind by what the join reaches.
    ends = ends_below(workload, {counts: 3600 * SECOND, "packets": 5})
    assert ends == {counts: 3600 * SECOND, pairs: 3600 * SECOND, **dict.fromkeys(("packets", "flows"), 3610 * SECOND)}
