"""`headrace test SPEC`: a pipeline's cases, rows in and rows expected out, run on local Spark in one session."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from headrace.cli.checking import examine
from headrace.cli.differing import difference
from headrace.cli.trying import answers_over
from headrace.engine import build_session, session_settings
from headrace.hiding import hide
from headrace.kernels.arrow_types import arrow_type
from headrace.language import load_cases
from headrace.model import Case, Column, Pipeline, Row, Stream, Table
from headrace.units import SECOND_US

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["run_cases"]

# Beside the pipeline file.
FILE = "tests.yml"
# Cases say by their rows what happens: the clock of the day they run on has no part in it.
_EVER_US = 10_000 * 365 * 86_400 * SECOND_US


@dataclass(frozen=True)
class _Outcome:
    """How a case went: by query the lines that say what is wrong, for those that are."""

    case: str
    wrong: Mapping[str, Sequence[str]]


def run_cases(spec: Path, cases: Path | None, conf: Mapping[str, str], as_json: bool) -> bool:
    """Runs every case and shows how it went; whether all pass."""
    pipeline = examine(spec, conf, alone=True).sound()
    wanted = load_cases(cases or spec.parent / FILE, pipeline)
    # Nothing is read from sources or written to sinks: what these need stays away.
    trial = replace(pipeline, engine=replace(pipeline.engine, packages=(), jars=(), schedule="none"))
    typer.echo("starting Spark", err=True)
    spark = build_session("test", conf=session_settings(trial, conf))
    outcomes: list[_Outcome] = []
    for case in wanted:
        with tempfile.TemporaryDirectory(prefix="headrace-test-") as home:
            outcomes.append(_outcome(case, trial, spark, Path(home)))
        if not as_json:
            _show(outcomes[-1])
    passed = sum(not each.wrong for each in outcomes)
    if as_json:
        told = [{"case": each.case, "ok": not each.wrong, "wrong": dict(each.wrong)} for each in outcomes]
        typer.echo(json.dumps({"ok": passed == len(outcomes), "cases": told}))
    else:
        typer.echo(f"{passed} of {len(outcomes)} cases pass")
    return passed == len(outcomes)


def _outcome(case: Case, pipeline: Pipeline, spark: SparkSession, home: Path) -> _Outcome:
    queries = tuple(query for query in pipeline.queries if query.name in case.expected)
    streams = tuple(replace(stream, ahead_us=_EVER_US, idle_us=_EVER_US) for stream in pipeline.streams)
    frames = {s.name: _frame(s, case.rows.get(s.name, ()), spark, home / "in" / s.name) for s in streams}
    tables = {t.name: _table(t, case.rows.get(t.name, ((),))[0], spark, home / "in" / t.name) for t in pipeline.tables}
    trial = replace(pipeline, queries=queries, streams=streams)
    wrong: dict[str, Sequence[str]] = {}
    for name, (answers, cause) in answers_over(trial, spark, frames, str(home / "state"), tables).items():
        found = [] if answers is None else answers.to_pylist()
        lines = [f"it failed: {hide(cause)}"] if cause else difference(case.expected[name], found)
        if lines:
            wrong[name] = lines
    return _Outcome(case.name, wrong)


def _frame(stream: Stream, epochs: Sequence[Sequence[Row]], spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of a case's rows, a file for each epoch."""
    for number, rows in enumerate(epochs):
        file = _write(stream.source_columns, rows, folder / f"{number:05d}.parquet")
        # Spark takes files in the order of their times.
        os.utime(file, (number, number))
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(_ddl(stream.source_columns)).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _table(table: Table, rows: Sequence[Row], spark: SparkSession, folder: Path) -> DataFrame:
    """A table of a case's rows."""
    return spark.read.schema(_ddl(table.columns)).parquet(str(_write(table.columns, rows, folder / "all.parquet")))


def _write(columns: Sequence[Column], rows: Sequence[Row], file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema), file)
    return file


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)


def _show(outcome: _Outcome) -> None:
    typer.echo(f"{'FAILED' if outcome.wrong else 'ok'}  {outcome.case}")
    for query, lines in outcome.wrong.items():
        typer.echo(f"  {query}: - expected, + found")
        for line in lines:
            typer.echo(f"    {line}")
