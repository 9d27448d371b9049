"""What explain says about a pipeline, to people and to programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.model import Pipeline, Query, Stream
from headrace.planning import explain, explain_text, plan_answer

TOP = "SELECT src, SUM(length) AS bytes FROM packets [WINDOW 10 min SLIDE 4 min] WHERE port = 80 GROUP BY src"
MEAN = "SELECT src, AVG(length) AS mean FROM packets [WINDOW 6 min SLIDE 2 min] WHERE port = 80 GROUP BY src"
SAME = "SELECT src, SUM(length) AS b FROM packets WHERE port = 80 GROUP BY window(ts, '6 minutes', '2 minutes'), src"
MEDIAN = "SELECT MEDIAN(x) AS m FROM packets [WINDOW 1 min]"
JOIN = "SELECT p.src FROM packets p [RANGE 10 s] JOIN flows f [RANGE 5 s] ON p.src = f.src"
ROWS = "SELECT src, AVG(length) AS a FROM packets [PARTITION BY src ROWS 100]"
TWIN = "SELECT src, SUM(length) AS bytes FROM packets [WINDOW 10 min SLIDE 4 min] WHERE port = 80 GROUP BY 1"
HTTPS = "SELECT src, COUNT(*) AS n FROM packets [WINDOW 1 min] WHERE port = 443 GROUP BY src"
WEB = "SELECT src, COUNT(*) AS n FROM packets [WINDOW 1 min] WHERE port IN (80, 443) GROUP BY src"


@pytest.fixture(scope="module")
def pipeline(bind: Callable[..., Query], streams: dict[str, Stream]) -> Pipeline:
    queries = {"top": TOP, "mean": MEAN, "same": SAME, "median": MEDIAN, "pairs": JOIN, "recent": ROWS, "twin": TWIN}
    return Pipeline("monitor", tuple(streams.values()), tuple(bind(sql, name) for name, sql in queries.items()))


@pytest.fixture(scope="module")
def value(pipeline: Pipeline) -> dict[str, Any]:
    return explain(pipeline)


def test_the_value_survives_json(value: dict[str, Any]):
    assert json.loads(json.dumps(value)) == value


def test_streams_say_their_time(value: dict[str, Any]):
    assert value["pipeline"] == "monitor"
    assert value["streams"]["packets"] == {
        "time": "ts",
        "lateness": "5 s",
        "ahead": "1 h",
        "idle": "1 min",
        "source": None,
    }


def test_a_synopsis_names_all_queries_it_serves(value: dict[str, Any], pipeline: Pipeline):
    shared = value["synopses"][plan_answer(pipeline.queries[0]).main]
    assert shared == {
        "streams": ["packets"],
        "pane": "2 min",
        "keys": ["packets.src"],
        "detail": None,
        "where": "packets.port = 80",
        "measures": ["count(packets.length)", "rows", "sum(packets.length)"],
        "keeps": None,
        "serves": ["top", "mean", "same", "twin"],
    }


def test_every_synopsis_a_query_names_is_there(value: dict[str, Any]):
    named = [id_ for query in value["queries"].values() if query["runs"] for id_ in query.get("synopses", ())]
    assert set(named) == set(value["synopses"])


@pytest.mark.parametrize(
    ("query", "window", "pane", "panes"),
    [
        pytest.param("top", "[WINDOW 10 min SLIDE 4 min]", "2 min", 5, id="the papers' form"),
        pytest.param("same", "window(6 min, 2 min)", "2 min", 3, id="Spark's form"),
        pytest.param("median", "[WINDOW 1 min SLIDE 1 min]", "1 min", 1, id="a tumbling window is one pane"),
    ],
)
def test_a_query_says_how_it_is_answered(value: dict[str, Any], query: str, window: str, pane: str, panes: int):
    found = value["queries"][query]
    assert (found["runs"], found["window"], found["pane"], found["panes_per_answer"]) == (True, window, pane, panes)
    assert found["why"] == "kept for itself"


def test_queries_of_a_group_are_answered_together(value: dict[str, Any]):
    kept = ("queries", "by", "where", "computed_once", "why")
    assert [{key: group[key] for key in kept} for group in value["groups"]] == [
        {
            "queries": ["top", "mean", "same", "twin"],
            "by": ["packets.src"],
            "where": "packets.port = 80",
            "computed_once": [["top", "twin"]],
            "why": "kept for itself",
        },
        {"queries": ["median"], "by": [], "where": None, "computed_once": [], "why": "kept for itself"},
    ]


def test_a_group_says_how_often_its_queries_run(value: dict[str, Any]):
    group = value["groups"][0]
    assert value["schedule"] == "hybrid-late-pending"
    assert group["periods"].keys() == set(group["queries"])
    assert group["periods"]["same"] == "2 min", "aligned windows keep their slide"
    assert "sub-groups at" in group["schedule"]
    assert set(group["sooner"]) <= {"top", "mean", "twin"}


def test_a_query_answered_from_what_others_keep_says_so(bind: Callable[..., Query], streams: dict[str, Stream]):
    queries = tuple(bind(sql, name) for name, sql in {"web": WEB, "top": TOP, "https": HTTPS}.items())
    found = explain(Pipeline("p", tuple(streams.values()), queries))
    parts = {plan_answer(query).main for query in queries[1:]}
    assert set(found["synopses"]) == parts, "nothing is kept for the union itself"
    assert set(found["queries"]["web"]["synopses"]) == parts
    assert found["queries"]["web"]["why"] == "a union of disjoint filters kept for others"
    assert all(found["synopses"][id_]["serves"][0] == "web" for id_ in parts)
    assert {found["synopses"][id_]["pane"] for id_ in parts} == {"1 min"}, "panes fit all queries they serve"
    (group,) = (g for g in found["groups"] if g["queries"] == ["web"])
    assert group["why"] == "a union of disjoint filters kept for others"


def test_a_row_window_says_how_its_state_is_kept(value: dict[str, Any]):
    found = value["queries"]["recent"]
    assert found["plan"] == {"rows": "[PARTITION BY c0 ROWS 100]", "aggregate": ["avg(c1)"], "input": "scan packets"}
    assert (found["runs"], found["keys"], found["mini_partitions_per_bin"]) == (True, ["packets.src"], 64)


def test_a_join_says_how_it_is_spread_and_why(value: dict[str, Any]):
    found = value["queries"]["pairs"]
    assert found["plan"] == {
        "join": "inner",
        "on": "p.src = f.src",
        "equalities": ["p.src = f.src"],
        "left": {"p": "scan packets", "window": "[RANGE 10 s]"},
        "right": {"f": "scan flows", "window": "[RANGE 5 s]"},
    }
    assert (found["runs"], found["way"], found["looked_up_by"]) == (True, "hash", ["src = src"])
    assert found["finished_by"] == "the tasks that join"
    assert "hash is least: 100000 and 100000 rows per epoch on 4 hosts" in found["why"]


def test_the_tree_of_a_query(value: dict[str, Any]):
    assert value["queries"]["top"]["plan"] == {
        "aggregate": ["sum(c1)"],
        "by": ["c0"],
        "window": "[WINDOW 10 min SLIDE 4 min]",
        "input": "scan packets where packets.port = 80",
    }


def test_a_union_is_explained(bind: Callable[..., Query], streams: dict[str, Stream]):
    query = bind(
        "SELECT COUNT(*) AS n FROM (SELECT src FROM packets UNION ALL SELECT src FROM flows) [WINDOW 1 min]", "both"
    )
    found = explain(Pipeline("p", tuple(streams.values()), (query,)))
    assert found["queries"]["both"]["plan"]["input"] == {"union": ["scan packets", "scan flows"]}
    (synopsis,) = found["synopses"].values()
    assert synopsis["streams"] == ["packets", "flows"]


def test_a_query_says_whose_results_it_reads(bind: Callable[..., Query], streams: dict[str, Stream]):
    minutes = "(SELECT src, SUM(length) AS n FROM packets GROUP BY window(ts, '1 minute'), src) AS m"
    queries = tuple(
        bind(sql, name)
        for name, sql in (
            ("peak", f"SELECT src, MAX(n) AS n FROM {minutes} [WINDOW 1 hour] GROUP BY src"),
            ("met", f"SELECT m.n FROM {minutes} [RANGE 1 min] JOIN flows f [RANGE 1 min] ON m.src = f.src"),
        )
    )
    pipeline = Pipeline("p", tuple(streams.values()), queries)
    found = explain(pipeline)
    ((name, below),) = found["queries"]["peak"]["below"].items()
    assert found["queries"]["met"]["below"] == {name: below}
    assert (below["window"], below["streams"], below["serves"]) == (
        "window(1 min, 1 min)",
        ["packets"],
        ["peak", "met"],
    )
    assert found["queries"]["peak"]["plan"]["input"]["results"]["window"] == "window(1 min, 1 min)"
    lines = explain_text(pipeline).splitlines()
    assert lines.count(f"      reads {name}: window(1 min, 1 min) over packets, for peak, met") == 2
    assert f"  by {name}.src: peak" in lines, "answers that others read are in no group of the schedule"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("pipeline monitor", id="the pipeline"),
        pytest.param(
            "  packets: from a DataFrame, time ts, rows up to 5 s late are used", id="a stream and its lateness"
        ),
        pytest.param(
            "      keeps count(packets.length), rows, sum(packets.length); serves top, mean, same, twin",
            id="a shared synopsis",
        ),
        pytest.param("  by packets.src where packets.port = 80: top, mean, same, twin", id="a group"),
        pytest.param("  by no key: median", id="a group without a key"),
        pytest.param("      top, twin ask for the same and are computed once", id="equal queries"),
        pytest.param("      5 panes per answer; kept for itself", id="why a query is answered so"),
        pytest.param("  top: [WINDOW 10 min SLIDE 4 min] over packets, to parquet", id="a query and its sink"),
        pytest.param("  recent: [PARTITION BY packets.src ROWS 100] over packets, to parquet", id="a row window"),
        pytest.param("  pairs: inner join of p [RANGE 10 s], f [RANGE 5 s], to parquet", id="a join"),
        pytest.param("      pairs are looked up by src = src, and finished by the tasks that join", id="how it is run"),
    ],
)
def test_text_has_the_line(pipeline: Pipeline, line: str):
    assert line in explain_text(pipeline).splitlines()


def test_text_names_every_synopsis_with_its_panes(pipeline: Pipeline, value: dict[str, Any]):
    text = explain_text(pipeline)
    main = plan_answer(pipeline.queries[0]).main
    assert f"  {main}: panes of 2 min of packets where packets.port = 80 by packets.src" in text.splitlines()
    detail = plan_answer(pipeline.queries[3]).demands[1].synopsis.id
    assert f"  {detail}: panes of 1 min of packets by no key, detail packets.x" in text.splitlines()
    assert all(f"  {id_}: " in text for id_ in value["synopses"])


def test_a_pipeline_that_may_shed_says_which_queries_lose_rows_and_why_others_do_not(pipeline: Pipeline):
    shedding = replace(pipeline, engine=replace(pipeline.engine, shedding="fit"))
    value, text = explain(shedding), explain_text(shedding)
    assert json.loads(json.dumps(value)) == value
    by = {query: part["by"] for part in value["shedding"]["parts"] for query in part["queries"]}
    assert by == {"top": "row", "mean": "row", "same": "row", "twin": "row", "median": "row",
                  "pairs": "key of the join", "recent": None}  # fmt: skip
    assert "shedding (fit, for throughput)" in text
    assert "  pairs: by key of the join" in text
    assert "  recent: never: without a row, others would be the last of their key" in text
    assert "shedding" not in explain(pipeline)
