"""Sinks that a checkpoint names: which of them are opened, although no pipeline names them now.

Whoever can write a checkpoint must not send results, or variables of the environment, where they like, nor name code.
So a sink out of a checkpoint is opened if the pipeline of now has it too, or has its connection; if it is a folder or a
Delta table that carries this checkpoint's mark; or if it reaches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headrace.engine.sinks.choose import FILE_FORMATS, Sink, reach_sink
from headrace.engine.sinks.delta import DeltaSink
from headrace.engine.sinks.files import owner_of
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.storage import open_storage
from headrace.engine.state.terms import sink_terms
from headrace.errors import EngineError, EnvironmentProblem, StateError
from headrace.language import is_text_option
from headrace.model import Query, SinkSpec, SinkTerms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["open_recalled", "recall_sink"]

# Formats whose option says where within a connection results go, and what a checkpoint may say there: names, no SQL.
_NAME = r"(?:[A-Za-z_][\w$]*|\"[^\"]+\")"
_WITHIN = {"jdbc": ("dbtable", re.compile(rf"{_NAME}(?:\.{_NAME})*")), "kafka": ("topic", re.compile(r"[\w.-]+"))}
_HARMLESS = ("memory", "console", "noop")
# A function that a caller gave, which has no name by which another process could find it.
_CALLERS = SinkSpec("python")


class _Nowhere(Sink):
    """Takes results of a query that has been given up, and whose sink is out of reach."""

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        return None


def recall_sink(query: str, terms: SinkTerms, present: Sequence[Query]) -> SinkSpec:
    """The sink that a query had; StateError if the checkpoint alone says so and that is not enough."""
    callers = SinkSpec(terms.format, None, terms.options) == _CALLERS
    for other in sorted(present, key=lambda other: other.name != query):
        if sink_terms(other.sink) == terms and (other.name == query or not callers):
            return other.sink
    within, places = _WITHIN.get(terms.format, ("", re.compile("")))
    place = next((text for key, text in terms.options if key.lower() == within), "")
    for other in present if place and places.fullmatch(place) else ():
        if _connection(sink_terms(other.sink), within) == _connection(terms, within):
            kept = tuple((key, text) for key, text in other.sink.options if key.lower() != within)
            return replace(other.sink, options=(*kept, (within, place)))
    if terms.withheld:
        raise StateError(f"the checkpoint does not keep the secrets of its sink ({', '.join(terms.withheld)})")
    harmless = terms.format in _HARMLESS or (callers and query not in {other.name for other in present})
    if terms.format in FILE_FORMATS or (terms.format == "delta" and terms.path is not None):
        harmless = all(is_text_option(key) or key.startswith("delta.") for key, _ in terms.options)
    if not harmless:
        raise StateError(f"the pipeline has no {terms.format} sink like its own, and a checkpoint cannot name one")
    return SinkSpec(terms.format, terms.path, terms.options, terms.partition_by, terms.key, terms.latest)


def _connection(terms: SinkTerms, within: str) -> SinkTerms:
    return replace(terms, options=tuple(sorted((k, text) for k, text in terms.options if k.lower() != within)))


def open_recalled(
    query: Query,
    present: Mapping[str, Query],
    spark: SparkSession,
    checkpoint: Checkpoint,
    functions: Mapping[str, Callable[[Any, int], Any]],
    note: Callable[[str], Any],
) -> Sink:
    """Opens the sink of a query as it was; StateError if it is not one of this checkpoint's.

    Where the pipeline has given the query up, a sink that is out of reach does not hold up the others.
    """
    mine = present.get(query.name)
    function = functions.get(query.name) if mine is not None and mine.sink == query.sink else None
    named = any(other.sink == query.sink for other in present.values())
    if function is None and query.sink == _CALLERS:
        note(f"query '{query.name}' is gone with the function that took its results: the last of them may be lacking")
        return _Nowhere()
    try:
        path = None if named or query.sink.format not in FILE_FORMATS else query.sink.path
        if path is not None and owner_of(open_storage(path, spark)) != checkpoint.id:
            raise StateError(f"the folder {path} is not, or no longer, this checkpoint's")
        sink = reach_sink(query, spark, checkpoint, function, True, note)
        if isinstance(sink, DeltaSink) and not named and not sink.is_claimed():
            raise StateError(f"the Delta table {query.sink.path} was never given to this checkpoint")
        return sink
    except (EngineError, EnvironmentProblem) as problem:
        if mine is not None:
            raise
        note(f"query '{query.name}' is gone and its sink is out of reach: it may lack the last results ({problem})")
        return _Nowhere()
