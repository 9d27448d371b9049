"""`headrace check SPEC --sample N`: the first rows of each stream, and the first answers over them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from headrace.cli.asking import table_of
from headrace.cli.trying import answers_over
from headrace.engine import build_session, session_settings
from headrace.engine.sources.sample import Refused, StreamSample, look, take
from headrace.errors import EngineError
from headrace.model import Pipeline, Stream
from headrace.sites import source_at
from headrace.units import SECOND_US, format_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["describe_sample", "show_sample"]

# Answers of a query that are shown.
FIRST = 5
# A value that is not what its column says is shown up to so many letters.
LONGEST = 60


def show_sample(pipeline: Pipeline, most: int, conf: Mapping[str, str]) -> None:
    """Prints what the first rows of each stream are like and what the queries answer over them."""
    typer.echo("starting Spark", err=True)
    spark = build_session("check", conf=session_settings(pipeline, conf))
    with tempfile.TemporaryDirectory(prefix="headrace-sample-") as home:
        frames, now_us = dict[str, "DataFrame"](), int(time.time() * SECOND_US)
        for stream in map(partial(_at_one_site, pipeline), pipeline.streams):
            taken = take(spark, stream, most, f"{home}/{stream.name}")
            typer.echo(describe_sample(look(taken, now_us), stream))
            good = f"{home}/{stream.name}/good"
            taken.good(now_us).coalesce(1).write.parquet(good)
            frames[stream.name] = spark.readStream.schema(taken.good(now_us).schema).parquet(good)
        # The rows that were taken have been selected already.
        plain = replace(pipeline, streams=tuple(replace(stream, select=None) for stream in pipeline.streams))
        answered = answers_over(plain, spark, frames, str(Path(home) / "state"))
    for name, (rows, why) in answered.items():
        count = 0 if rows is None else rows.num_rows
        first = f", the first {FIRST}" if count > FIRST else ""
        typer.echo(f"\n{name}: " + (f"failed: {why}" if why else f"{count:,} answers{first}"))
        if rows is not None and count:
            Console(soft_wrap=True).print(table_of(rows.slice(0, FIRST)), markup=False, highlight=False)
    failed = [name for name, (_, why) in answered.items() if why]
    if failed:
        raise EngineError(f"over these rows {len(failed)} of {len(answered)} queries failed: {', '.join(failed)}")


def _at_one_site(pipeline: Pipeline, stream: Stream) -> Stream:
    """A stream as it is read where it is born, at the first such site if there are several."""
    if stream.source is None or not pipeline.sites:
        return stream
    return replace(stream, source=source_at(stream.source, pipeline.birthplaces(stream.name)[0]))


def describe_sample(found: StreamSample, stream: Stream) -> str:
    """What is to be known of a stream's first rows, in sentences."""
    lines = [f"{found.stream}: the first {found.rows:,} rows, of which {found.parsed:,} parse"]
    lines += [f"  {_refusal(each)}" for each in found.refused]
    if found.first_us is None or found.last_us is None:
        return "\n".join(lines)
    lines.append(f"  event times from {_instant(found.first_us)} to {_instant(found.last_us)}")
    if not found.behind:
        return "\n".join([*lines, "  every row is at least as late as those before it"])
    part, most = found.behind / found.parsed, format_duration(found.worst_us)
    lines.append(f"  {part:.1%} of rows come after a row of a later time, by at most {most}")
    missed = found.late / found.parsed
    wanted = f"lateness: {format_duration(found.wanted_us)} would admit 99.9 % in any case"
    had = f"lateness {format_duration(stream.lateness_us)}"
    if found.late:
        lines.append(f"  with {had} up to {missed:.1%} of rows are late; {wanted}")
    else:
        lines.append(f"  with {had} none of them is late; {wanted}")
    return "\n".join(lines)


def _refusal(each: Refused) -> str:
    what = f"{each.rows:,} rejected: {each.reason}"
    if each.column is not None:
        what = f"{each.rows:,} rejected: column '{each.column}' is {each.type}"
    value = None if each.value is None else each.value if len(each.value) <= LONGEST else f"{each.value[:LONGEST]}..."
    return what if value is None else f"{what}, as in {value!r}"


def _instant(us: int) -> str:
    return f"{datetime.fromtimestamp(us / SECOND_US, UTC):%Y-%m-%d %H:%M:%S}"
