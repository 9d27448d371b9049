"""The Spark source of a site's links: its offsets are the epochs that were sent, and it has no rows of its own.

The rows are read by the epoch, from files. So one source serves all links of a site: links come and go without another
plan of Spark's, and Spark's log says which epochs of which links a batch has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import fs as arrow_fs
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from headrace.kernels.chunks import open_filesystem

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["FORMAT", "links_source"]

FORMAT = "headrace_links"
# Epochs of one link that a batch takes at most: what gathered while a receiver was away comes in pieces.
MOST_EPOCHS = 100


def _reader() -> Callable[[dict[str, str]], DataSourceStreamReader]:
    """What Spark asks for offsets."""

    class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, folders: dict[str, str]) -> None:
            self._folders = folders
            self._until: dict[str, int] | None = None

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {}

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._until = {link: epochs[-1] for link in self._folders if (epochs := self._sent(link))}

        def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
            end = dict(start)
            for link in self._folders:
                last = None if self._until is None else self._until.get(link, -1)
                new = [e for e in self._sent(link) if e > start.get(link, -1) and (last is None or e <= last)]
                if new:
                    end[link] = new[:MOST_EPOCHS][-1]
            return end

        def _sent(self, link: str) -> list[int]:
            filesystem, path = open_filesystem(self._folders[link])
            found = filesystem.get_file_info(arrow_fs.FileSelector(path, allow_not_found=True))
            names = (file.base_name.removesuffix(".json") for file in found)
            return sorted(int(name) for name in names if name.isascii() and name.isdigit())

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
            return []

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            yield from ()

        def commit(self, end: dict[str, int]) -> None:
            """Nothing to forget: the receiver says by a file of its own what it has."""

    return _Reader


def links_source() -> type[DataSource]:
    """The source to register with Spark; its option `folders` has by link the folder of what was sent."""
    reader = _reader()

    class LinksSource(DataSource):
        """Registers the source with Spark."""

        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return "nothing INT"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return reader(json.loads(self.options["folders"]))

    return LinksSource
