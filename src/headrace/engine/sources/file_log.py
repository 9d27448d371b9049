"""Which files an epoch took, and how many bytes they have: by Spark's own log of a file source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.engine.state.storage import Storage
from headrace.language import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["FileLog", "Files"]

# Files of another file system whose sizes are asked for; the others are taken to be like them.
SAMPLED = 16


@dataclass(frozen=True, slots=True)
class Files:
    """How many files an epoch took, their bytes in all, and those of the largest."""

    count: int = 0
    bytes: int = 0
    largest: int = 0


class FileLog:
    """Reads what Spark logged of the batches of file sources; `streams` are all streams, as Spark has them united."""

    def __init__(self, storage: Storage, streams: Sequence[str], spark: SparkSession) -> None:
        self._storage, self._streams, self._spark = storage, tuple(streams), spark

    def files(self, batch: int, stream: str) -> Files | None:
        """What a batch took; None where the log does not say: after a compaction, or of streams of the caller's own."""
        try:
            return self._files(batch, stream)
        except Exception:  # a storage that does not answer: no epoch depends on these numbers
            return None

    def _files(self, batch: int, stream: str) -> Files | None:
        here, before = self._offset(batch, stream), self._offset(batch - 1, stream) if batch > 0 else -1
        if here is None or before is None:
            return None
        paths: list[str] = []
        for entry in range(before + 1, here + 1):
            text = self._storage.read(f"spark/sources/{self._streams.index(stream)}/{entry}")
            if text is None:
                return None
            paths += [json.loads(line)["path"] for line in text.decode().splitlines()[1:] if line]
        sizes = self._sizes(paths)
        if not sizes:
            return None if paths else Files()
        return Files(len(paths), sum(sizes) * len(paths) // len(sizes), max(sizes))

    def _offset(self, batch: int, stream: str) -> int | None:
        """Up to which entry of its log a batch took a stream's files; -1 before the first."""
        text = self._storage.read(f"spark/offsets/{batch}")
        lines = [] if text is None else text.decode().splitlines()[2:]
        # A DataFrame of the caller's may have several sources, or share one: then lines are not streams.
        if len(lines) != len(self._streams):
            return None
        line = lines[self._streams.index(stream)]
        return -1 if line == "-" else json.loads(line).get("logOffset")

    def _sizes(self, paths: Sequence[str]) -> list[int]:
        """Sizes of files that are still there."""
        found: list[int] = []
        far: list[str] = []
        for path in paths:
            place = local_path(path)
            if place is None:
                far.append(path)
                continue
            try:
                found.append(place.stat().st_size)
            except OSError:
                continue
        return found + [self._far(path) for path in far[:: max(1, len(far) // SAMPLED)]]

    def _far(self, path: str) -> int:
        jvm: Any = self._spark._jvm
        place = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path))
        configuration = self._spark._jsc.hadoopConfiguration()
        return int(place.getFileSystem(configuration).getFileStatus(place).getLen())
