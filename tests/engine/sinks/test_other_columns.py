"""A place has one kind of row: changed SQL that would write another there is refused, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postgres import PASSWORD, Postgres
from world import SCHEMA, make_epochs, results, write_epochs

import headrace as hr
from headrace.engine.sinks.files import FileSink, claim, mark_of
from headrace.engine.sinks.kafka import KafkaSink
from headrace.engine.sinks.shape import shape_of
from headrace.engine.state.storage import LocalStorage
from headrace.errors import SpecError
from headrace.language import bind_query, parse_schema
from headrace.model import FolderMark, SinkSpec, Stream

WAS = "SELECT k, COUNT(*) AS n FROM r GROUP BY window(ts, '20 s'), k"
SAME = WAS.replace(", k", ", k HAVING k > 'k1'")
OTHER = WAS.replace("n FROM", "n, SUM(i) AS total FROM")


def run(spark: Any, home: Path, sinks: dict[str, Any], **changed: str) -> Any:
    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in"))
    pipe = hr.Pipeline("columns").stream("r", rows, time="ts")
    for name, sink in sinks.items():
        pipe.query(name, changed.get(name, WAS), sink=sink)
    started = pipe.start(spark, str(home / "state"), once=True)
    started.await_termination()
    return started


def test_every_sink_that_lasts_refuses_results_with_other_columns(
    spark: Any, postgres: Postgres, tmp_path: Path
) -> None:
    write_epochs(tmp_path / "in", make_epochs(seed=3, epochs=2))
    sinks: dict[str, Any] = {
        "files": hr.parquet(str(tmp_path / "files")),
        "lines": hr.json(str(tmp_path / "lines")),
        "table": hr.delta(str(tmp_path / "table")),
        "database": hr.jdbc(postgres.url, "other_columns", user="ann", password=PASSWORD),
        "tags": hr.sink("xml", str(tmp_path / "tags"), rowTag="r"),
        "memory": hr.memory(),
    }
    run(spark, tmp_path, sinks)
    told = {
        "files": f"{tmp_path}/files has results with other columns: total is new",
        "lines": f"{tmp_path}/lines has results with other columns: total is new",
        "table": "has other columns than the results: total is new",
        "database": "the table other_columns has results with other columns: it lacks total",
        "tags": f"{tmp_path}/tags has results with other columns: total is new",
    }
    before = results(tmp_path / "files")
    refused: dict[str, str] = {}
    for name in told:
        try:
            run(spark, tmp_path, sinks, **{name: OTHER})
        except SpecError as error:
            refused[name] = str(error)
    assert [name for name, sentence in told.items() if sentence not in refused.get(name, "")] == [], refused
    assert results(tmp_path / "files") == before
    write_epochs(tmp_path / "in", make_epochs(seed=4, epochs=3)[2:], first=2)
    # Another query with the same columns goes on in its place, and another place takes any.
    elsewhere = {**sinks, "files": hr.parquet(str(tmp_path / "files2"))}
    assert run(spark, tmp_path, elsewhere, files=OTHER, memory=OTHER, table=SAME, tags=SAME).failed == {}


QUERY = bind_query("q", "SELECT k FROM r", {"r": Stream("r", parse_schema("ts TIMESTAMP, k STRING"), "ts")})


def columns(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, "INT") for name in names)


def test_a_topic_has_one_kind_of_message_of_each_query(tmp_path: Path) -> None:
    def sink(topic: str) -> KafkaSink:
        options = (("kafka.bootstrap.servers", "h:9"), ("topic", topic))
        spec = SinkSpec("kafka", None, options)
        storage = LocalStorage(str(tmp_path))
        return KafkaSink(bind_query("q", QUERY.sql, {"r": Stream("r", parse_schema("ts TIMESTAMP, k STRING"), "ts")},
                                    sink=spec), storage)  # fmt: skip

    sink("t").claim(columns("a", "b"))
    sink("t").claim(columns("a", "b"))
    with pytest.raises(SpecError, match="topic t has results with other columns: b is gone"):
        sink("t").claim(columns("a"))
    sink("u").claim(columns("a"))
    sink("u").forget()
    sink("u").claim(columns("c"))


@pytest.mark.parametrize(
    ("first", "fails"),
    [
        pytest.param(lambda sink: None, False, id="none yet: it takes any"),
        pytest.param(lambda sink: sink.adopt(["x.parquet"], 0, False), True, id="some: it takes no other"),
    ],
)
def test_a_folder_knows_the_columns_of_its_results(
    first: Callable[[FileSink], None], fails: bool, tmp_path: Path
) -> None:
    storage = LocalStorage(str(tmp_path))
    mine, other = FolderMark("c", columns("a")), FolderMark("c", columns("b"))
    claim(storage, mine, False, "q")
    sink = FileSink(SinkSpec("parquet", str(tmp_path)), storage, mine)
    (tmp_path / "_staging").mkdir()
    (tmp_path / "_staging" / "x.parquet").touch()
    first(sink)
    if fails:
        with pytest.raises(SpecError, match="other columns: b is new, and a is gone"):
            claim(storage, other, True, "q")
    else:
        claim(storage, other, True, "q")
        # The change came to nothing, and the first query goes on.
        sink.adopt(["x.parquet"], 0, False)
    assert mark_of(storage) == mine
    assert shape_of(QUERY) == (("k", "STRING"),)


def test_a_folder_of_an_older_headrace_learns_its_columns(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    storage.create("_headrace.json", b'{"checkpoint": "c"}')
    (tmp_path / "epoch-000000000-000.parquet").touch()
    claim(storage, FolderMark("c", columns("a")), True, "q")
    assert mark_of(storage) == FolderMark("c", columns("a"))
