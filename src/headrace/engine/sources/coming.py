"""How many rows an epoch is about to take, as far as Spark's log of its offsets says that before they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.engine.sources.file_log import Files
from headrace.engine.state.storage import Storage

__all__ = ["Batch", "ComingRows"]


class TakenFiles(Protocol):
    """Knows which files a batch takes."""

    def files(self, batch: int, stream: str) -> Files | None: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch takes of a stream: rows where offsets count them, bytes where they are files."""

    rows: int | None = None
    bytes: int | None = None


class ComingRows:
    """Reads what Spark has planned for a batch; `streams` are all streams, as Spark has them united."""

    def __init__(self, storage: Storage, streams: Sequence[str], log: TakenFiles) -> None:
        self._storage, self._streams, self._log = storage, tuple(streams), log

    def of(self, batch: int) -> dict[str, Batch]:
        """By stream what a batch takes; streams whose source does not tell are missing."""
        try:
            before, now = self._offsets(batch - 1) if batch else {}, self._offsets(batch)
        except (OSError, ValueError):  # a storage that does not answer: no epoch depends on these numbers
            return {}
        found = {stream: self._batch(batch, stream, before.get(stream), now.get(stream)) for stream in self._streams}
        return {stream: each for stream, each in found.items() if each is not None}

    def _offsets(self, batch: int) -> dict[str, object]:
        text = self._storage.read(f"spark/offsets/{batch}")
        lines = [] if text is None else text.decode().splitlines()[2:]
        # A DataFrame of the caller's may have several sources, or share one: then lines are not streams.
        if len(lines) != len(self._streams):
            return {}
        return {s: json.loads(line) for s, line in zip(self._streams, lines, strict=True) if line != "-"}

    def _batch(self, batch: int, stream: str, before: object, now: object) -> Batch | None:
        if not isinstance(now, dict):
            return None
        if "logOffset" in now:
            files = self._log.files(batch, stream)
            return None if files is None else Batch(bytes=files.bytes)
        first = before if isinstance(before, dict) else {}
        if set(now) == {"row"}:
            return Batch(rows=max(0, int(now["row"]) - int(first.get("row", 0))))
        return _messages(first, now)


def _messages(before: Mapping[str, object], now: Mapping[str, object]) -> Batch | None:
    """Messages by the offsets of Kafka's topics and partitions.

    >>> _messages({"t": {"0": 5}}, {"t": {"0": 9, "1": 3}}), _messages({}, {"seconds": 3})
    (Batch(rows=7, bytes=None), None)
    """
    rows = 0
    for topic, partitions in now.items():
        known = before.get(topic, {})
        if not isinstance(partitions, dict) or not isinstance(known, dict):
            return None
        for partition, offset in partitions.items():
            rows += max(0, int(offset) - int(known.get(partition, 0)))
    return Batch(rows=rows)
