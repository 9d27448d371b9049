"""A pipeline's queries over rows at hand, on local Spark: nothing is read from its sources or written to its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine import Hooks, start
from headrace.model import Pipeline, SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["answers_over"]


def answers_over(
    pipeline: Pipeline,
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    checkpoint: str,
    tables: Mapping[str, DataFrame] | None = None,
) -> dict[str, tuple[pa.Table | None, str | None]]:
    """By query all its answers over the rows of the frames, or why it failed; no row is shed, nothing is expected.

    Tables are read from where they are declared, unless they are among `tables`.
    """
    queries = tuple(replace(query, sink=SinkSpec("memory"), expect=()) for query in pipeline.queries)
    # The streams' rows are brought as they are.
    streams = tuple(replace(stream, source=None, expect=()) for stream in pipeline.streams)
    engine = replace(pipeline.engine, metrics=None, shedding="off")
    trial = replace(pipeline, streams=streams, queries=queries, engine=engine, sites=(), network=None)
    quiet = Hooks(on_note=lambda _: None)
    run = start(trial, spark, frames=frames, tables=tables, checkpoint=checkpoint, once=True, flush=True, hooks=quiet)
    run.await_termination()
    failed = run.failed
    return {query.name: (None if query.name in failed else run.table(query.name), failed.get(query.name))
            for query in queries}  # fmt: skip
