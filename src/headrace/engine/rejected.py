"""Rows that were refused, kept with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.engine.absorb import Bounds
from headrace.engine.messages import CORRUPT, PLACE
from headrace.engine.storage import Storage, for_spark
from headrace.model import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_rejected"]

_PLACE = tuple(zip(PLACE, ("STRING", "INT", "BIGINT"), strict=True))


def write_rejected(
    batch: DataFrame,
    streams: Sequence[Stream],
    bounds: Sequence[Bounds],
    corrupt: frozenset[str],
    storage: Storage,
    epoch: int,
    replay: bool,
) -> None:
    """Writes an epoch's rejected rows as JSON lines `{"stream", "reason", "row"}` under `rejected/`.

    Messages have `topic`, `partition` and `offset` too, by which they can be found again.
    An epoch has them rarely, so they are looked for in a pass of their own instead of burdening every epoch's.
    """
    parts = [_parts(stream, bound, stream.name in corrupt) for stream, bound in zip(streams, bounds, strict=True)]
    columns = {
        name: "CASE _s " + " ".join(f"WHEN {i} THEN {part[name]}" for i, part in enumerate(parts)) + " END"
        for name in parts[0]
    }
    found = batch.selectExpr(*(f"{sql} AS {name}" for name, sql in columns.items())).filter("reason IS NOT NULL")
    staging = f"rejected/_staging-{uuid4().hex}"
    found.write.json(f"{for_spark(storage.root)}/{staging}")
    if replay:
        for name in storage.names("rejected"):
            if name.startswith(f"epoch-{epoch:09d}-"):
                storage.delete(f"rejected/{name}")
    files = [name for name in storage.names(staging) if name.startswith("part-")]
    files = [name for name in files if storage.size(f"{staging}/{name}")]
    for i, name in enumerate(files):
        storage.move(f"{staging}/{name}", f"rejected/epoch-{epoch:09d}-{i:03d}.json")
    storage.delete(staging)


def _parts(stream: Stream, bound: Bounds, lenient: bool) -> dict[str, str]:
    """What is written of a stream's rejected rows, as Spark SQL; null is left out."""
    time = f"{stream.name}.`{stream.time}`"
    reasons = (
        f"WHEN {time} IS NULL THEN 'no event time' WHEN unix_micros({time}) > {bound.greatest_us} THEN 'too far ahead'"
    )
    row = f"to_json({stream.name})"
    if lenient:
        reasons = f"WHEN {stream.name}.{CORRUPT} IS NOT NULL THEN 'unparseable' {reasons}"
        row = f"make_valid_utf8(COALESCE({stream.name}.{CORRUPT}, {row}))"
    messages = stream.source is not None and stream.source.value is not None
    place = {
        name.removeprefix("kafka_"): f"{stream.name}.{name}" if messages else f"CAST(NULL AS {type_})"
        for name, type_ in _PLACE
    }
    return {"stream": f"'{stream.name}'", **place, "reason": f"CASE {reasons} END", "row": row}
