"""Queries become one graph: nodes are named by what they do, and shared by queries that want the same."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from headrace.model import Edge, Graph, Node, Pipeline, Query, Stream, Traffic
from headrace.planning import build_graph, draw_graph, graph_json, plan_pipeline

TOP = "SELECT src, SUM(length) AS bytes FROM packets [WINDOW 10 min SLIDE 4 min] WHERE port = 80 GROUP BY src"
OFTEN = "SELECT src, AVG(length) AS mean FROM packets [WINDOW 6 min SLIDE 2 min] WHERE port = 80 GROUP BY src"
JOIN = "SELECT p.src, f.x FROM packets p [RANGE 10 s] JOIN flows f [RANGE 5 s] ON p.src = f.src"
OVER = (
    "SELECT src, COUNT(*) AS n FROM (SELECT p.src AS src FROM packets p [RANGE 10 s] JOIN flows f [RANGE 5 s] "
    "ON p.src = f.src) [WINDOW 1 min] GROUP BY src"
)
SELF = "SELECT a.src FROM packets a [RANGE 1 s] JOIN packets b [RANGE 1 s] ON a.src = b.dst"
BOTH = "SELECT src, SUM(length) AS n FROM (SELECT src, length FROM packets UNION ALL SELECT src, length FROM flows) " \
       "[WINDOW 1 min] GROUP BY src"  # fmt: skip
CHAIN = (
    "SELECT MAX(n) AS n FROM (SELECT src, SUM(length) AS n FROM packets GROUP BY window(ts, '1 minute'), src) AS m "
    "[WINDOW 1 hour]"
)
ROWS = "SELECT src, AVG(length) AS a FROM packets [PARTITION BY src ROWS 100]"


@pytest.fixture(scope="module")
def graph_of(bind: Callable[..., Query], streams: dict[str, Stream]) -> Callable[..., Graph]:
    def made(**queries: str) -> Graph:
        bound = tuple(bind(sql, name) for name, sql in queries.items())
        workload, refused = plan_pipeline(Pipeline("p", tuple(streams.values()), bound))
        assert not refused
        return build_graph(workload, tuple(streams.values()))

    return made


def kinds(graph: Graph) -> list[str]:
    return sorted(node.kind for node in graph.nodes)


def test_a_query_is_a_path_from_its_stream_to_its_sink(graph_of: Callable[..., Graph]):
    graph = graph_of(top=TOP)
    assert [node.kind for node in graph.in_order] == ["source", "synopsis", "answer", "sink"]
    rows, panes, results = graph.edges
    assert (rows.carries, rows.where, rows.keys) == ("rows", "packets.port = 80", ("packets.src",))
    assert rows.columns == ("packets.src", "packets.length")
    assert (panes.carries, results.carries) == ("panes", "rows")


def test_queries_with_the_same_rows_and_keys_share_their_synopsis(graph_of: Callable[..., Graph]):
    graph = graph_of(top=TOP, often=OFTEN)
    assert kinds(graph) == ["answer", "answer", "sink", "sink", "source", "synopsis"]
    (synopsis,) = (node for node in graph.nodes if node.kind == "synopsis")
    assert synopsis.owners == ("top", "often")


def test_queries_that_ask_the_same_share_their_answer_too(graph_of: Callable[..., Graph]):
    graph = graph_of(one=TOP, two=TOP)
    (answer,) = (node for node in graph.nodes if node.kind == "answer")
    assert answer.owners == ("one", "two")
    assert len(graph.out_of(answer.id)) == 2


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param(TOP, id="an aggregate"),
        pytest.param(JOIN, id="a join"),
        pytest.param(OVER, id="an aggregate over a join"),
        pytest.param(SELF, id="a join of a stream with itself"),
        pytest.param(BOTH, id="a union"),
        pytest.param(ROWS, id="a row window"),
        pytest.param(CHAIN, id="an aggregate over answers"),
    ],
)
def test_nodes_are_named_by_their_content_not_by_the_query(graph_of: Callable[..., Graph], sql: str):
    def names(graph: Graph) -> set[str]:
        return {node.id for node in graph.nodes if node.kind != "sink"}

    assert names(graph_of(a=sql)) == names(graph_of(another_name=sql))


def test_a_join_below_an_aggregate_is_the_join_that_another_query_has(graph_of: Callable[..., Graph]):
    graph = graph_of(over=OVER, again=OVER.replace("1 min", "2 min"))
    (join,) = (node for node in graph.nodes if node.kind == "join")
    assert join.owners == ("over", "again")
    assert [edge.role for edge in graph.into(join.id)] == ["left", "right"]


def test_answers_go_into_panes_of_others(graph_of: Callable[..., Graph]):
    graph = graph_of(q=CHAIN)
    assert [node.kind for node in graph.in_order] == ["source", "synopsis", "answer", "synopsis", "answer", "sink"]
    assert [edge.carries for edge in graph.edges].count("panes") == 2
    assert len(draw_graph(graph).splitlines()) == 1 + 6 + 5


def test_a_stream_that_is_joined_with_itself_has_two_edges(graph_of: Callable[..., Graph]):
    graph = graph_of(q=SELF)
    (join,) = (node for node in graph.nodes if node.kind == "join")
    assert [edge.id for edge in graph.into(join.id)] == [f"source-packets>{join.id}:{s}" for s in ("left", "right")]


def test_another_filter_or_window_is_another_node(graph_of: Callable[..., Graph]):
    ids = [
        {node.id for node in graph_of(q=sql).nodes if node.kind in ("synopsis", "answer")}
        for sql in (TOP, TOP.replace("80", "443"), TOP.replace("SLIDE 4", "SLIDE 5"))
    ]
    assert not ids[0] & ids[1]
    assert len(ids[0] & ids[2]) == 1, "the same rows by the same keys, in other windows"


def test_the_graph_is_told_to_programs_and_drawn_for_eyes(graph_of: Callable[..., Graph]):
    graph = graph_of(top=TOP, pairs=JOIN, recent=ROWS)
    value = graph_json(graph)
    assert json.loads(json.dumps(value)) == value
    drawn = draw_graph(graph).splitlines()
    assert drawn[0] == "flowchart LR"
    assert len(drawn) == 1 + len(graph.nodes) + len(graph.edges)
    assert any('|"packets.port = 80"|' in line for line in drawn)


@pytest.mark.parametrize(
    ("nodes", "edges", "traffic", "why"),
    [
        pytest.param([Node("a", "source", ""), Node("a", "sink", "")], [], {}, "the same id", id="one id twice"),
        pytest.param([Node("a", "source", "")], [Edge("a", "b")], {}, "no node 'b'", id="an edge to nowhere"),
        pytest.param([Node("a", "join", ""), Node("b", "join", "")], [Edge("a", "b"), Edge("b", "a")], {}, "circle",
                     id="a circle"),
        pytest.param([Node("a", "source", "")], [], {"b": Traffic()}, "was measured of 'b'", id="a measure of nothing"),
        pytest.param([Node("a", "join", ""), Node("b", "join", "")], [Edge("a", "b"), Edge("a", "b")], {}, "two edges",
                     id="one edge twice"),
    ],
)  # fmt: skip
def test_what_is_no_graph_cannot_be_built(nodes: list[Node], edges: list[Edge], traffic: dict[str, Traffic], why: str):
    with pytest.raises(ValueError, match=why):
        Graph(tuple(nodes), tuple(edges), traffic)
