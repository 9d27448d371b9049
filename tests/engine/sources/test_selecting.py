"""Streams with a `select` against DuckDB: what cannot be made is rejected with its reason, the rest is the stream."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from world import START, admit, assert_same, results

import headrace as hr
from headrace.engine import Hooks, judge_select
from headrace.errors import SpecError, StateError
from headrace.language import bind_selection, parse_schema
from headrace.model import Stream

SCHEMA = (
    "stamp BIGINT, user STRUCT<id: INT, name: STRING>, amount STRING, flag STRING, d INT, tags ARRAY<STRING>, "
    "raw STRING"
)
SELECT = """timestamp_micros(stamp) AS ts, user.*, CAST(amount AS INT) AS n, n * 2 AS twice, 12 / d AS part,
  from_json(raw, 'a INT, b STRING') AS j, j.a, explode_outer(tags) AS tag, 6 / length(tag) AS size
  WHERE CAST(flag AS INT) > 0"""
LATENESS_S = 10
# What DuckDB makes of the rows that can be made; `why` is the first term that cannot, in the order of the layers.
JUDGE = """
WITH raw AS (SELECT *, TRY_CAST(flag AS INT) AS f, TRY_CAST(amount AS INT) AS n FROM source),
judged AS (SELECT *, CASE
  WHEN flag IS NOT NULL AND f IS NULL THEN 'WHERE' WHEN f IS NULL OR f <= 0 THEN 'filtered'
  WHEN amount IS NOT NULL AND n IS NULL THEN 'column ''n''' WHEN d = 0 THEN 'column ''part'''
  WHEN n > 1073741823 THEN 'column ''twice''' END AS why FROM raw)
"""
ROWS = """
SELECT make_timestamptz(stamp) AS ts, "user".id AS id, "user".name AS name, n, n * 2 AS twice, 12 / d AS part,
  CAST(json_extract(raw, '$.a') AS INT) AS a, tag, 6 / length(tag) AS size
FROM judged, unnest(CASE WHEN tags IS NULL OR len(tags) = 0 THEN [NULL] ELSE tags END) AS t(tag)
WHERE why IS NULL AND tag IS DISTINCT FROM ''
"""
EVERYTHING = "SELECT ts, id, name, n, twice, part, a, tag, size FROM events"
SUMS = "SELECT tag, SUM(n) AS n, COUNT(*) AS c, SUM(part) AS p FROM events GROUP BY window(ts, '20 seconds'), tag"


def raw_rows(seed: int, epochs: int) -> list[list[dict[str, Any]]]:
    """Rows as a source gives them, in disorder, with nulls and values that cannot be used."""
    rng = random.Random(seed)

    def row(epoch: int) -> dict[str, Any]:
        at = START + (epoch * 20 + rng.randint(0, 20)) * 1_000_000 - (rng.random() < 0.2) * rng.randint(0, 60_000_000)
        return {
            "stamp": None if rng.random() < 0.05 else at,
            "user": rng.choice([None, {"id": rng.randint(0, 5), "name": rng.choice(["ann", "bob", None])}]),
            "amount": rng.choice(["1", "7", " 12", "2000000000", None, "1.5e", "abc'é", ""]),
            "flag": rng.choice(["1", "1", "1", "2", "0", None, "x"]),
            "d": rng.choice([None, 0, 1, 5, 5, 5]),
            "tags": rng.choice([None, [], ["a"], ["a", "bb"], ["bb", None, "", "ccc"]]),
            "raw": rng.choice([None, '{"a": 1, "b": "x"}', '{"a": 2}', "{}"]),
        }

    return [[row(epoch) for _ in range(rng.randint(1, 120))] for epoch in range(epochs)]


def write(folder: Path, epochs: list[list[dict[str, Any]]], first: int = 0) -> None:
    """A file of JSON lines for each epoch, two of whose lines cannot be read."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(epochs, first):
        path = folder / f".{number}.tmp"
        path.write_text("\n".join([*map(json.dumps, rows), '{"stamp": 1', '{"d": "many"}']), encoding="utf-8")
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        path.rename(folder / f"{number}.json")


def pipeline_file(tmp_path: Path) -> Path:
    spec = tmp_path / "pipeline.yml"
    select = "\n".join(f"      {line}" for line in SELECT.splitlines())
    spec.write_text(
        f"""
name: selected
streams:
  events:
    source: {{format: json, path: in, options: {{maxFilesPerTrigger: 1}}}}
    schema: "{SCHEMA}"
    select: >
{select}
    time: ts
    lateness: {LATENESS_S} seconds
queries:
  everything: {{sql: "{EVERYTHING}"}}
  sums: {{sql: "{SUMS}"}}
output: out
engine: {{checkpoint: state}}
"""
    )
    return spec


def judged(rows: list[dict[str, Any]], sql: str) -> pa.Table:
    user = pa.struct([("id", pa.int32()), ("name", pa.string())])
    types = pa.schema([
        ("stamp", pa.int64()), ("user", user), ("amount", pa.string()), ("flag", pa.string()), ("d", pa.int32()),
        ("tags", pa.list_(pa.string())), ("raw", pa.string()),
    ])  # fmt: skip
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("source", pa.Table.from_pylist(rows, types))
    return connection.sql(JUDGE + sql).to_arrow_table()


def test_what_a_select_makes_is_the_stream_and_the_rest_is_rejected(spark: Any, tmp_path: Path) -> None:
    epochs = raw_rows(seed=5, epochs=6)
    seen: list[Any] = []
    for first, last in ((0, 3), (3, 6)):
        write(tmp_path / "in", epochs[first:last], first)
        pipe = hr.Pipeline.from_file(pipeline_file(tmp_path))
        pipe.start(spark, once=True, flush=last == 6, hooks=Hooks(on_epoch=seen.append)).await_termination()
    made = [judged(rows, ROWS) for rows in epochs]
    timed = [table.filter(table["ts"].is_valid()) for table in made]
    admitted = admit(timed, LATENESS_S)
    assert admitted.late > 0
    assert_same(results(tmp_path / "out" / "everything"), [tuple(row.values()) for row in admitted.rows.to_pylist()])
    sums = duckdb.connect()
    sums.execute("SET TimeZone = 'UTC'")
    sums.register("events", admitted.rows)
    wanted = sums.execute(
        "SELECT time_bucket(INTERVAL 20 SECOND, ts) AS w, w + INTERVAL 20 SECOND, tag, SUM(n), COUNT(*), SUM(part) "
        "FROM events GROUP BY w, tag"
    ).fetchall()
    assert_same(results(tmp_path / "out" / "sums"), wanted)

    whys = [row["why"] for rows in epochs for row in judged(rows, "SELECT why FROM judged").to_pylist()]
    refused = [why for why in whys if why not in (None, "filtered")]
    lists = [
        row["tags"] for rows in epochs for row in judged(rows, "SELECT tags FROM judged WHERE why IS NULL").to_pylist()
    ]
    refused += ["column 'size'"] * sum((tags or []).count("") for tags in lists)
    timeless = sum(table["ts"].null_count for table in made)
    assert set(refused) == {"WHERE", "column 'n'", "column 'part'", "column 'twice'", "column 'size'"}
    ledger = seen[-1].ledger["events"]
    assert ledger.rejected == len(refused) + timeless + 2 * len(epochs)
    assert (ledger.used, ledger.late) == (admitted.rows.num_rows, admitted.late)
    assert ledger.rows_in == ledger.used + ledger.late + ledger.shed + ledger.rejected
    files = (tmp_path / "state" / "rejected").glob("epoch-*.json")
    lines = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    reasons = [line["reason"] for line in lines]
    assert sorted(reason.split(" cannot")[0] for reason in reasons if "cannot" in reason) == sorted(refused)
    assert reasons.count("unparseable") == 2 * len(epochs)
    told = next(line for line in lines if line["reason"].startswith("column 'n'") and "é" in line["reason"])
    assert told["reason"] == "column 'n' cannot be evaluated with amount = abc'é"
    assert json.loads(told["row"])["amount"] == "abc'é"


def started(spark: Any, tmp_path: Path, select: str, queries: dict[str, str], hooks: Hooks | None = None) -> list[str]:
    """Runs a pipeline of Python's to the end of its rows; what it has noted."""
    notes: list[str] = []
    rows = (
        spark.readStream.schema("at BIGINT, v STRING, w INT").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    )
    pipe = hr.Pipeline("selected").stream("s", rows, time="ts", select=select)
    for name, sql in queries.items():
        pipe.query(name, sql, sink=hr.parquet(str(tmp_path / "out" / name)))
    told = hooks or Hooks(on_note=notes.append)
    pipe.start(spark, checkpoint=str(tmp_path / "state"), once=True, hooks=told).await_termination()
    return notes


def lines(folder: Path, number: int, *rows: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".{number}.tmp"
    path.write_text("\n".join(map(json.dumps, rows)))
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    path.rename(folder / f"{number}.json")


def test_an_epoch_runs_again_with_the_select_it_had_and_what_was_kept_is_never_mixed(
    spark: Any, tmp_path: Path
) -> None:
    before = "timestamp_seconds(at) AS ts, CAST(v AS INT) AS n, w"
    plain = {"plain": "SELECT n FROM s"}
    lines(tmp_path / "in", 0, {"at": 1, "v": "1", "w": 5})
    started(spark, tmp_path, before, plain)
    lines(tmp_path / "in", 1, {"at": 2, "v": "2", "w": 6})

    def crash(point: str) -> None:
        if point == "before-manifest":
            raise RuntimeError("here")

    with pytest.raises(Exception, match="here"):
        started(spark, tmp_path, before, plain, Hooks(probe=crash))
    after = "timestamp_seconds(at) AS ts, CAST(v AS INT) + 100 AS n, w"
    with pytest.raises(
        StateError, match="select of stream 's' has changed in column 'n', and what was kept for query 'plain'"
    ):
        started(spark, tmp_path, after, plain)
    assert sorted(results(tmp_path / "out" / "plain")) == [(1,), (2,)], "the epoch that was begun saw what it had seen"
    lines(tmp_path / "in", 2, {"at": 3, "v": "3", "w": 7})
    # A column that comes before the others, and one that nobody has read so far, change nothing that is kept.
    notes = started(spark, tmp_path, "w + 1 AS w, v AS text, timestamp_seconds(at) AS ts, CAST(v AS INT) AS n",
                    {**plain, "more": "SELECT w, text, n FROM s"})  # fmt: skip
    assert any("is selected differently from now on" in note for note in notes)
    assert sorted(results(tmp_path / "out" / "plain")) == [(1,), (2,), (3,)]
    assert results(tmp_path / "out" / "more") == [(8, "3", 3)]


def test_a_term_that_several_columns_have_is_tried_in_each(spark: Any, tmp_path: Path) -> None:
    rows = [{"at": 1, "v": "1", "w": 1}, {"at": 2, "v": "many", "w": 1}, {"at": 3, "v": "1", "w": 0}]
    lines(tmp_path / "in", 0, *rows, {"at": 4, "v": "2", "w": 1})
    terms = ("CAST(v AS INT)", "1 / w", "element_at(array(1), w)", "abs(CAST(v AS TINYINT))")
    made = [f"{term} AS a{i}, {term} + {term} AS b{i}, a{i} + {term} AS c{i}" for i, term in enumerate(terms)]
    select = ", ".join(("timestamp_seconds(at) AS ts", *made))
    started(spark, tmp_path, select, {"q": "SELECT a0, b0, c0, b1, c2, c3 FROM s"})
    assert_same(results(tmp_path / "out" / "q"), [(1, 2, 2, 2.0, 2, 2), (2, 4, 4, 2.0, 2, 4)])


def test_spark_judges_a_select_before_anything_runs(spark: Any, tmp_path: Path) -> None:
    columns = parse_schema("at BIGINT, v STRING")

    def stream(select: str) -> Stream:
        made = bind_selection(select, columns, "s")
        return Stream("s", tuple(column for column, _ in made.columns), "ts", select=made)

    judge_select(spark, stream("timestamp_seconds(at) AS ts, v, explode(array(at, at + 1)) AS x, x + 1 AS y"))
    with pytest.raises(SpecError, match="select of stream 's': "):
        judge_select(spark, stream("timestamp_seconds(at) AS ts, CAST(map_from_arrays(at, at) AS STRING) AS j"))
