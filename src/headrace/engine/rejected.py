"""Rows that were refused, kept with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.engine.absorb import Bounds
from headrace.engine.sources import CORRUPT
from headrace.engine.storage import Storage, for_spark
from headrace.model import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["write_rejected"]


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

    An epoch has them rarely, so they are looked for in a pass of their own instead of burdening every epoch's.
    """
    found = None
    for i, (stream, bound) in enumerate(zip(streams, bounds, strict=True)):
        time = f"{stream.name}.`{stream.time}`"
        late = f"unix_micros({time}) > {bound.greatest_us}"
        reasons = f"WHEN {time} IS NULL THEN 'no event time' WHEN {late} THEN 'too far ahead'"
        row = f"to_json({stream.name})"
        if stream.name in corrupt:
            reasons = f"WHEN {stream.name}.{CORRUPT} IS NOT NULL THEN 'unparseable' {reasons}"
            row = f"COALESCE({stream.name}.{CORRUPT}, {row})"
        rows = (
            batch.filter(f"_s = {i}")
            .selectExpr(f"'{stream.name}' AS stream", f"CASE {reasons} END AS reason", f"{row} AS row")
            .filter("reason IS NOT NULL")
        )
        found = rows if found is None else found.unionAll(rows)
    assert found is not None
    staging = f"rejected/_staging-{uuid4().hex}"
    found.write.json(f"{for_spark(storage.root)}/{staging}")
    if replay:
        for name in storage.names("rejected"):
            if name.startswith(f"epoch-{epoch:09d}-"):
                storage.delete(f"rejected/{name}")
    parts = [name for name in storage.names(staging) if name.startswith("part-")]
    parts = [name for name in parts if storage.size(f"{staging}/{name}")]
    for i, name in enumerate(parts):
        storage.move(f"{staging}/{name}", f"rejected/epoch-{epoch:09d}-{i:03d}.json")
    storage.delete(staging)
