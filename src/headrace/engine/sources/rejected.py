"""Rows that were refused, kept with the reason, the newest of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.engine.sources.messages import CORRUPT
from headrace.engine.sources.selecting import UNMADE
from headrace.engine.spark.session import tuning_from
from headrace.engine.state.storage import Storage, for_spark
from headrace.kernels.absorb import Bounds
from headrace.model import PLACE, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["RejectedRows", "Removed", "removed"]

_REMOVED = "rejected/removed.json"
_PLACE = tuple(zip(PLACE, ("STRING", "INT", "BIGINT"), strict=True))


@dataclass(frozen=True, slots=True)
class Removed:
    """Files of rejected rows that had to make room for newer ones; the ledger counts their rows all the same."""

    files: int = 0
    bytes: int = 0


class RejectedRows:
    """The files under `rejected/` of a checkpoint: `epoch-N-i.json`, JSON lines `{"stream", "reason", "row"}`.

    Messages have `topic`, `partition` and `offset` too, by which they can be found again.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._sizes: dict[str, int] = {}

    def write(
        self,
        batch: DataFrame,
        streams: Sequence[Stream],
        bounds: Sequence[Bounds],
        corrupt: frozenset[str],
        epoch: int,
        replay: bool,
    ) -> None:
        """Writes an epoch's rejected rows, in place of any earlier ones, and removes the oldest beyond the limits.

        An epoch has them rarely, so they are looked for in a pass of their own instead of burdening every epoch's.
        """
        storage = self._storage
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
                    self._sizes.pop(name, None)
        files = [name for name in storage.names(staging) if name.startswith("part-")]
        files = [name for name in files if storage.size(f"{staging}/{name}")]
        for i, name in enumerate(files):
            storage.move(f"{staging}/{name}", f"rejected/epoch-{epoch:09d}-{i:03d}.json")
        storage.delete(staging)
        limits = tuning_from(batch.sparkSession)
        self.trim(limits.rejected_files, limits.rejected_bytes)

    def trim(self, most_files: int, most_bytes: int) -> None:
        """Removes the oldest files until the others are within the limits; the newest stays, whatever its size."""
        sizes = self._measured()
        going, total = list[str](), sum(sizes.values())
        for name in sorted(sizes)[:-1]:
            if len(sizes) - len(going) <= most_files and total <= most_bytes:
                break
            going.append(name)
            total -= sizes[name]
        if going:
            before = removed(self._storage)
            after = Removed(before.files + len(going), before.bytes + sum(sizes[name] for name in going))
            self._storage.replace(_REMOVED, json.dumps(asdict(after)).encode())
        for name in going:
            self._storage.delete(f"rejected/{name}")
            del self._sizes[name]

    def _measured(self) -> dict[str, int]:
        """Sizes of the files; each is asked for once."""
        names = [name for name in self._storage.names("rejected") if name.startswith("epoch-")]
        self._sizes = {
            name: self._sizes[name] if name in self._sizes else self._storage.size(f"rejected/{name}") or 0
            for name in names
        }
        return self._sizes

    def account(self) -> dict[str, int]:
        """Files and bytes there are, and were removed to make room."""
        sizes, gone = self._measured(), removed(self._storage)
        there = {"files": len(sizes), "bytes": sum(sizes.values())}
        return {**there, "removed_files": gone.files, "removed_bytes": gone.bytes}


def removed(storage: Storage) -> Removed:
    """What was removed since the checkpoint began."""
    data = storage.read(_REMOVED)
    return Removed() if data is None else Removed(**json.loads(data))


def _parts(stream: Stream, bound: Bounds, lenient: bool) -> dict[str, str]:
    """What is written of a stream's rejected rows, as Spark SQL; null is left out."""
    time = f"{stream.name}.`{stream.time}`"
    reasons = (
        f"WHEN {time} IS NULL THEN 'no event time' WHEN unix_micros({time}) > {bound.greatest_us} THEN 'too far ahead'"
    )
    row = f"to_json({stream.name})"
    if lenient:
        why = "'unparseable'" if stream.select is None else f"COALESCE({stream.name}.{UNMADE}, 'unparseable')"
        reasons = f"WHEN {stream.name}.{CORRUPT} IS NOT NULL THEN {why} {reasons}"
        row = f"make_valid_utf8(COALESCE({stream.name}.{CORRUPT}, {row}))"
    messages = stream.source is not None and stream.source.value is not None
    place = {
        name.removeprefix("kafka_"): f"{stream.name}.{name}" if messages else f"CAST(NULL AS {type_})"
        for name, type_ in _PLACE
    }
    return {"stream": f"'{stream.name}'", **place, "reason": f"CASE {reasons} END", "row": row}
