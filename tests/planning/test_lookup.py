"""Lookups as nodes: what queries share, and what explain and the graph say of tables."""

from __future__ import annotations

import pytest

from headrace.errors import SpecError
from headrace.language import bind_query, parse_schema
from headrace.model import Pipeline, Source, Stream, Table
from headrace.planning import LookupPlan, build_graph, explain, explain_text, plan_pipeline, plan_query

HOSTS = Table("hosts", parse_schema("host STRING, zone INT"), Source("csv", "hosts.csv"), 3600 * 1_000_000)
JOIN = "FROM packets AS p JOIN hosts AS h ON p.src = h.host WHERE p.port = 80"
QUERIES = {
    "plain": f"SELECT p.src, h.zone {JOIN}",
    "twin": f"SELECT h.zone + 1 AS z, p.src {JOIN}",
    "zones": "SELECT h.zone, COUNT(*) AS n FROM packets AS p [WINDOW 1 min] LEFT JOIN hosts AS h ON p.src = h.host "
    "GROUP BY h.zone",
}


@pytest.fixture(scope="module")
def pipeline(streams: dict[str, Stream]) -> Pipeline:
    queries = tuple(bind_query(name, sql, streams, tables={"hosts": HOSTS}) for name, sql in QUERIES.items())
    return Pipeline("p", tuple(streams.values()), queries, tables=(HOSTS,))


def test_queries_that_look_up_the_same_share_node_and_store(pipeline: Pipeline):
    workload, refused = plan_pipeline(pipeline)
    assert not refused
    lookups = {name: workload.queries_over(name) for name, p in workload.flows.items() if isinstance(p, LookupPlan)}
    assert sorted(lookups.values()) == [("plain", "twin"), ("zones",)]
    assert workload.rounds[0] == tuple(lookups), "lookups are made before what reads them"
    feeds = {s.feeds[0].columns for p in workload.flows.values() if isinstance(p, LookupPlan) for s in p.stores}
    assert feeds == {("packets.src", "packets.ts")}, "no more is kept of a row than is looked up and read"


def test_the_graph_has_tables(pipeline: Pipeline):
    graph = build_graph(plan_pipeline(pipeline)[0], pipeline.streams)
    assert sorted(graph.node("table-hosts").owners) == ["plain", "twin", "zones"]
    assert [graph.node(edge.target).kind for edge in graph.out_of("table-hosts")] == ["lookup", "lookup"]
    said = {node.what for node in graph.nodes if node.kind == "lookup"}
    assert said == {"rows looked up in hosts (inner)", "rows looked up in hosts (left)"}


def test_explain_says_what_is_looked_up(pipeline: Pipeline):
    value = explain(pipeline)
    assert value["tables"]["hosts"] == {
        "source": "csv",
        "columns": {"host": "STRING", "zone": "INT"},
        "refresh": "1 h",
        "limit": "1.07 GB",
        "on_error": "stop",
        "serves": ["plain", "twin", "zones"],
    }
    text = explain_text(pipeline)
    assert "hosts: from csv, read every 1 h, at most 1.07 GB" in text
    assert "packets looked up in hosts (left) ON p.c0 = h.host" in text
    assert "tables" not in explain(Pipeline("p", pipeline.streams, ()))


def test_a_column_that_no_store_holds_is_refused(streams: dict[str, Stream]):
    known = dict(streams, m=Stream("m", parse_schema("ts TIMESTAMP, k STRING, tags MAP<STRING, INT>"), "ts"))
    sql = "SELECT m.tags['a'] AS a FROM m JOIN hosts AS h ON m.k = h.host"
    with pytest.raises(SpecError, match="a lookup in a table cannot keep a column of the type MAP"):
        plan_query(bind_query("q", sql, known, tables={"hosts": HOSTS}))
