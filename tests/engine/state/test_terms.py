"""What an epoch was decided under comes back from its checkpoint, whatever the pipeline says now; code does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.replay import Replaying
from headrace.engine.sinks.recall import open_recalled, recall_sink
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.storage import open_storage
from headrace.engine.state.terms import query_terms, setting_terms, sink_terms, stream_of, stream_terms
from headrace.engine.state.workload import Terms, describe_workload, plan_workload, read_terms, restored_workload
from headrace.errors import CorruptStateError, StateError
from headrace.language import bind_query, bind_selection, parse_schema, stream_expected, with_expectations
from headrace.model import (
    Decoding,
    EngineSettings,
    EpochDecision,
    Pipeline,
    Query,
    SinkSpec,
    Source,
    StepFunction,
    Stream,
)
from headrace.planning import Supplier, Supply, plan_query

LINES = Source("json", "/in/r", (("multiLine", "true"), ("maxFilesPerTrigger", "2"), ("password", "x1secret")))
MESSAGES = Source("kafka", None, (("subscribe", "t"),), Decoding("csv", (("sep", ";"),)))
R = Stream("r", parse_schema("ts TIMESTAMP, k STRING, x DOUBLE, v INT, `a b` INT"), "ts", 5, 6, 7, LINES,
           expect=stream_expected([("late < 5 %", "stop")]))  # fmt: skip
M = Stream("m", parse_schema("ts TIMESTAMP, k STRING"), "ts", 1, source=MESSAGES)
STREAMS = (R, M)
STEP = StepFunction("steps:count", parse_schema("k STRING, n INT"), parse_schema("k STRING, n INT"), 3, "steps:older")
DECISION = EpochDecision(4, 4, 0, 4, (), workload=4)
SQL = {
    "fine": "SELECT k, x, SUM(v) AS n FROM r [WINDOW 1 min] WHERE v > 1 GROUP BY k, x",
    "coarse": "SELECT k, SUM(v) AS n FROM r [WINDOW 1 min SLIDE 20 s] WHERE v > 1 GROUP BY k",
    "pairs": "SELECT a.v FROM r AS a [RANGE 5 s] JOIN m AS b [RANGE 5 s] ON a.k = b.k",
    "over": "SELECT COUNT(*) AS n FROM (SELECT a.ts FROM r AS a [RANGE 5 s] JOIN m AS b [RANGE 5 s] ON a.k = b.k) AS j "
    "[WINDOW 1 min]",
    "rows": "SELECT k, SUM(v) AS s FROM r [PARTITION BY k ROWS 3]",
    "step": "SELECT k, v FROM r [PARTITION BY k]",
}


def bound(name: str, sql: str, **given: Any) -> Query:
    query = bind_query(name, sql, {s.name: s for s in STREAMS}, step=STEP if name == "step" else None, **given)
    return with_expectations(query, [("rows > 0", "warn"), ("n > 0 OR k IS NULL", "fail")] if name == "coarse" else [])


JDBC = SinkSpec("jdbc", None, (("url", "jdbc:postgresql://h/d"), ("dbtable", "t"), ("password", "${env:PW}")))
QUERIES = (
    bound("fine", SQL["fine"], sink=SinkSpec("parquet", "/out/fine"), priority=2, weight=0.5, lifetime="1 hour"),
    bound("coarse", SQL["coarse"], sink=JDBC),
    *(bound(name, SQL[name], sink=SinkSpec("memory")) for name in ("pairs", "over", "rows", "step")),
)
THEN = Pipeline("p", STREAMS, QUERIES, engine=EngineSettings(250_000, "state", "hybrid", "split", bins=3))
SETTINGS = setting_terms(THEN.engine, {"spark.headrace.patience": "7"})


def told(pipeline: Pipeline = THEN) -> dict[str, Any]:
    """The workload file of a pipeline, as it is read from JSON."""
    workload = plan_workload({q.name: plan_query(q) for q in pipeline.queries}, pipeline.streams, None, {})
    value = describe_workload(workload, pipeline.streams, SETTINGS, Manifest(3, 3))
    found = json.loads(json.dumps(value))
    assert isinstance(found, dict)
    return found


def replaying(now: Pipeline) -> Replaying:
    nothing: Any = None
    return Replaying(now, nothing, nothing, nothing, {}, {}, {}, nothing, nothing)


def recalled(value: dict[str, Any], now: Pipeline = THEN) -> Pipeline:
    return replaying(now)._pipeline(DECISION, read_terms(value))


def by_name(pipeline: Pipeline) -> tuple[dict[str, Stream], dict[str, Query]]:
    """Streams and queries, of which the order does not matter; nor does that of a source's options."""

    def in_order(stream: Stream) -> Stream:
        source = stream.source
        return replace(
            stream, source=None if source is None else replace(source, options=tuple(sorted(source.options)))
        )

    return {s.name: in_order(s) for s in pipeline.streams}, {query.name: query for query in pipeline.queries}


def test_streams_queries_and_settings_come_back() -> None:
    found = recalled(told())
    assert by_name(found) == by_name(THEN)
    assert found.engine == EngineSettings(250_000, None, "hybrid", "split")
    assert read_terms(told()).settings.tuning == {"spark.headrace.patience": "7"}
    assert read_terms(told()).begun == Manifest(3, 3)


def test_what_is_edited_is_not_noticed() -> None:
    source = replace(LINES, options=(("multiLine", "false"), ("maxFilesPerTrigger", "9"), ("password", "another")))
    edited = replace(R, lateness_us=99, ahead_us=98, idle_us=97, columns=R.columns[:4], source=source)
    now = replace(
        THEN,
        streams=(edited, M),
        queries=(
            bound("coarse", SQL["fine"], sink=JDBC, priority=9, weight=9.0, lifetime="1 s"),
            bound("added", SQL["rows"]),
            next(query for query in QUERIES if query.name == "step"),
        ),
        engine=EngineSettings(9_000_000, "state", "none", "hash", bins=3),
    )
    found = recalled(told(), now)
    # How much is read at a time, and by which password, is the pipeline's of now.
    options = (("maxFilesPerTrigger", "9"), ("password", "another"), ("multiLine", "true"))
    assert by_name(found) == by_name(replace(THEN, streams=(replace(R, source=replace(LINES, options=options)), M)))
    assert found.engine.trigger_us == 250_000


def test_a_workload_is_not_planned_anew() -> None:
    """Panes by finer keys go on serving a query, although the query they were kept for has gone."""
    plans = {q.name: plan_query(q) for q in QUERIES}
    both = plan_workload(plans, STREAMS, None, {})
    assert restored_workload(plans, STREAMS, read_terms(told()).description) == both
    fine, coarse = (d.synopsis.id for name in ("fine", "coarse") for d in both.plans[name].demands)
    rolled = replace(both, supplies={**both.supplies, coarse: Supply((Supplier(fine, (0,)),), "finer", whole=True)})
    left = rolled.only(["coarse"])
    value = json.loads(json.dumps(describe_workload(left, STREAMS, SETTINGS, Manifest(3, 3))))
    found = restored_workload({"coarse": plans["coarse"]}, STREAMS, read_terms(value).description)
    assert found == left
    assert set(found.kept) == {fine}


# What an epoch reads --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "told_of", "without"),
    [
        pytest.param(
            Stream,
            {"name", "columns", "time", "lateness_us", "ahead_us", "idle_us", "expect", "as_panes", "select"},
            {"source": "a checkpoint belongs to its sources; how texts are read is told", "rate": "for placement only"},
            id="of a stream",
        ),
        pytest.param(
            Query,
            {"name", "sql", "sink", "priority", "weight", "lifetime_us", "shedding", "expect"},
            {"root": "follows from the SQL; its function is told", "finish": "follows from the SQL"},
            id="of a query",
        ),
        pytest.param(
            EngineSettings,
            {"trigger_us", "schedule", "join", "shedding", "backlog", "objective"},
            {
                "checkpoint": "is where this is read",
                "bins": "are in headrace.json from the beginning",
                "conf": "is Spark's, but for spark.headrace.*, which is told; what answers depend on is fixed",
                "packages": "are code",
                "jars": "are code",
                "metrics": "shows what happens",
            },
            id="of the engine",
        ),
    ],
)
def test_everything_that_an_epoch_reads_is_told(kind: Any, told_of: set[str], without: dict[str, str]) -> None:
    """A new field is told to the checkpoint, or there is a reason why an epoch does not depend on it."""
    assert {field.name for field in fields(kind)} == told_of | without.keys()


def selected(select: str) -> Stream:
    made = bind_selection(select, R.columns, "r")
    return replace(R, columns=tuple(column for column, _ in made.columns), select=made)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda s: replace(s, lateness_us=8), id="lateness"),
        pytest.param(lambda s: replace(s, ahead_us=8), id="ahead"),
        pytest.param(lambda s: replace(s, idle_us=8), id="idle"),
        pytest.param(lambda s: replace(s, columns=s.columns[:3]), id="columns"),
        pytest.param(lambda s: replace(s, as_panes=True), id="panes in place of rows"),
        pytest.param(lambda s: replace(s, source=replace(LINES, options=())), id="how texts are read"),
        pytest.param(lambda s: selected("ts, upper(k) AS k, explode(array(v, `a b`)) AS e, e + 1 AS n"), id="select"),
    ],
)
def test_each_setting_of_a_stream_is_told(edit: Callable[[Stream], Stream]) -> None:
    terms = stream_terms(edit(R))
    assert terms != stream_terms(R)
    assert stream_of("r", terms, R) == stream_of("r", stream_terms(edit(R)), R) != R


@pytest.mark.parametrize(
    "change",
    [
        {"sql": SQL["coarse"]}, {"sink": SinkSpec("parquet", "/out/other")}, {"priority": 3}, {"weight": 3.0},
        {"lifetime_us": None},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_each_setting_of_a_query_is_told(change: dict[str, Any]) -> None:
    assert query_terms(replace(QUERIES[0], **change)) != query_terms(QUERIES[0])


# Secrets --------------------------------------------------------------------------------------------------------------


def test_no_secret_is_told() -> None:
    sink = SinkSpec("jdbc", None, (("url", "jdbc:postgresql://h/d?password=x2secret"), ("user", "ann")))
    pipeline = replace(THEN, queries=(bound("coarse", SQL["coarse"], sink=sink),))
    text = json.dumps(told(pipeline))
    assert "secret" not in text.replace("${env:PW}", "")
    assert read_terms(told(pipeline)).queries["coarse"].sink.withheld == ("url",)
    # The pipeline of now has the secret still: it is the same sink.
    assert recalled(told(pipeline), pipeline).queries[0].sink == sink
    with pytest.raises(
        StateError, match=r"'coarse': the checkpoint does not keep the secrets of its sink \(url\)\. Put"
    ):
        recalled(told(pipeline), replace(THEN, queries=()))


# Guard ----------------------------------------------------------------------------------------------------------------


def _sql(value: dict[str, Any]) -> None:
    value["queries"]["coarse"]["sql"] = SQL["coarse"].replace("v > 1", "reflect('java.lang.System', 'exit') IS NULL")


def _sink(**sink: Any) -> Callable[[dict[str, Any]], None]:
    def plant(value: dict[str, Any]) -> None:
        value["queries"]["coarse"]["sink"] = {"format": "parquet", "path": None, "options": [], "withheld": [], **sink}

    return plant


def _step(value: dict[str, Any]) -> None:
    value["queries"]["step"]["step"]["function"] = "os:system"


def _migration(value: dict[str, Any]) -> None:
    value["queries"]["step"]["step"]["migration"] = "os:system"


def _name(value: dict[str, Any]) -> None:
    value["queries"]["../../x"] = value["queries"].pop("coarse")


def _jdbc(**options: str) -> Callable[[dict[str, Any]], None]:
    return _sink(format="jdbc", options=[[key, text] for key, text in {**dict(JDBC.options), **options}.items()])


@pytest.mark.parametrize(
    ("plant", "refusal"),
    [
        pytest.param(_sql, "reflect", id="SQL that is refused in a file"),
        pytest.param(_name, "no query has such a name", id="a name that leaves its folder"),
        pytest.param(_step, "no longer has its function os:system", id="a function with state"),
        pytest.param(_migration, "no longer has its function os:system", id="a migration"),
        pytest.param(
            _sink(format="python", options=[["function", "os:system"]]), "cannot name one", id="a function as a sink"
        ),
        pytest.param(_sink(format="com.example.Evil", path="/x"), "cannot name one", id="a class as a sink"),
        pytest.param(_jdbc(url="jdbc:postgresql://evil/d"), "cannot name one", id="another database"),
        pytest.param(_jdbc(user="${env:HOME}"), "cannot name one", id="a variable of the environment"),
        pytest.param(_jdbc(dbtable="t; DROP TABLE x"), "cannot name one", id="SQL as a table"),
        pytest.param(_jdbc(dbtable='"t" x"'), "cannot name one", id="SQL behind a quoted table"),
        pytest.param(
            _sink(format="kafka", options=[["kafka.sasl.jaas.config", "${env:HOME}"]]), "cannot name one", id="a broker"
        ),
        pytest.param(
            _sink(path="/x", options=[["fs.file.impl", "com.example.Evil"]]),
            "cannot name one",
            id="a class as an option",
        ),
    ],
)
def test_a_checkpoint_names_no_code_and_no_place(plant: Callable[[dict[str, Any]], None], refusal: str) -> None:
    value = told()
    plant(value)
    with pytest.raises(StateError, match=refusal):
        recalled(value)


def test_a_table_beside_one_that_the_pipeline_has_is_opened_as_it_was() -> None:
    other = SinkSpec("jdbc", None, (*JDBC.options[:1], ("dbtable", "other"), *JDBC.options[2:]))
    assert dict(recall_sink("gone", sink_terms(JDBC), [bound("q", SQL["fine"], sink=other)]).options) == dict(
        JDBC.options
    )


def test_a_callers_function_comes_with_its_query_alone() -> None:
    mine, notes = SinkSpec("python"), list[str]()
    point: Any = None
    here = {"q": bound("q", SQL["fine"], sink=mine)}
    assert recall_sink("q", sink_terms(mine), [*here.values()]) == mine
    assert open_recalled(here["q"], here, point, Checkpoint(point), {"q": print}, pytest.fail).function is print
    # It has no name: where its query has gone, nobody takes the results; under another sink it is missed.
    gone = bound("gone", SQL["fine"], sink=recall_sink("gone", sink_terms(mine), [*here.values()]))
    assert open_recalled(gone, here, point, point, {"q": print}, notes.append).write(point, 1, True) is None
    assert notes == ["query 'gone' is gone with the function that took its results: the last of them may be lacking"]
    with pytest.raises(StateError, match="cannot name one"):
        recall_sink("q", sink_terms(mine), [bound("q", SQL["fine"], sink=SinkSpec("memory"))])


@pytest.mark.parametrize(
    "select", ["ts, reflect('a', 'b') AS k", "ts, '${env:HOME}' AS k", "ts, k FROM r", "ts, now() AS k"]
)
def test_a_select_out_of_a_checkpoint_passes_the_guard_of_a_file(select: str) -> None:
    planted = replace(stream_terms(selected("ts, k")), select=select)
    with pytest.raises(CorruptStateError, match=r"describes what no pipeline can declare: .*select of stream 'r'"):
        stream_of("r", planted, R)


def test_options_of_a_source_are_those_that_change_how_a_text_is_read() -> None:
    planted = replace(stream_terms(R), reading=(("multiLine", "false"), ("fs.file.impl", "com.example.Evil")))
    source = stream_of("r", planted, R).source
    assert source is not None
    assert dict(source.options) == {"multiLine": "false", "maxFilesPerTrigger": "2", "password": "x1secret"}


def test_files_out_of_a_checkpoint_are_its_own(tmp_path: Path) -> None:
    point, nothing = Checkpoint(open_storage(str(tmp_path / "state"))), None
    point.open(2, {"r": ""})
    for folder, owner in (("mine", point.id), ("foreign", "another")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "_headrace.json").write_text(json.dumps({"checkpoint": owner}))
    (tmp_path / "nobodys").mkdir()
    spark: Any = nothing

    def opened(folder: str) -> Any:
        query = bound("fine", SQL["fine"], sink=SinkSpec("parquet", str(tmp_path / folder)))
        return open_recalled(query, {}, spark, point, {}, pytest.fail)

    assert opened("mine").storage.root == str(tmp_path / "mine")
    for folder in ("foreign", "nobodys", "missing"):
        with pytest.raises(StateError, match="is not, or no longer, this checkpoint's"):
            opened(folder)
    assert not (tmp_path / "missing").exists()
    assert not list((tmp_path / "nobodys").iterdir())
    point.close()


@pytest.mark.parametrize("part", ["queries", "settings", "begun", "streams", "kept"])
def test_a_file_that_lacks_a_part_is_refused(part: str) -> None:
    value = told()
    del value[part]
    with pytest.raises(CorruptStateError, match=f"does not say what its last epoch was decided under: '{part}'"):
        read_terms(value)


def test_panes_that_no_query_of_the_file_asks_for_run_no_sql() -> None:
    value = told(replace(THEN, queries=QUERIES[:1]))
    (id_,) = value["kept"]
    hostile = json.loads(json.dumps(value["kept"][id_]))
    hostile["feeds"][0]["keys"][0] = "reflect('a', 'b')"
    value["kept"] = {"planted": hostile}
    value["supplies"][id_]["sources"] = [["planted", [0, 1]]]
    terms: Terms = read_terms(value)
    with pytest.raises(CorruptStateError, match="does not describe the panes of its queries: 'planted' is missing"):
        restored_workload({"fine": plan_query(QUERIES[0])}, STREAMS, terms.description)


def test_other_streams_are_refused() -> None:
    with pytest.raises(CorruptStateError, match="was decided for the streams r, m"):
        recalled(told(), replace(THEN, streams=(R,)))
