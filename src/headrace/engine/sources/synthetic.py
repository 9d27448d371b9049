"""The `synthetic` source: rows that Spark tasks make (`kernels/synthetic.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from headrace.kernels.synthetic import make_rows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["synthetic_source"]

_ROWS_PER_TASK = 250_000


# Classes that are made in a function travel to tasks as they are: executors have no module of the engine to find them
# in.


def _reader() -> Callable[[dict[str, str]], DataSourceStreamReader]:
    """What Spark asks for offsets and rows."""

    class _Range(InputPartition):
        def __init__(self, first: int, end: int) -> None:
            self.first, self.end = first, end

    class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, options: dict[str, str]) -> None:
            self._options = options
            self._total = int(float(options["rows"])) if "rows" in options else None
            self._epoch = max(1, int(float(options.get("epoch") or options.get("rate", "1000"))))

        def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
            return {"row": 0}

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            if self._total is None:
                self._total = self._epoch

        def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
            end = start["row"] + self._epoch
            return {"row": end if self._total is None else max(start["row"], min(end, self._total))}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[_Range]:
            first, last = start["row"], end["row"]
            return [_Range(at, min(at + _ROWS_PER_TASK, last)) for at in range(first, last, _ROWS_PER_TASK)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            assert isinstance(partition, _Range)
            yield make_rows(self._options, partition.first, partition.end)

        def commit(self, end: dict[str, int]) -> None:
            """Nothing to forget: rows are made, not kept."""

    return _Reader


def synthetic_source() -> type[DataSource]:
    """The source to register with Spark."""
    reader = _reader()

    class SyntheticSource(DataSource):
        """Registers the source with Spark."""

        @classmethod
        def name(cls) -> str:
            return "headrace_synthetic"

        def schema(self) -> str:
            return "ts TIMESTAMP, key STRING, value DOUBLE, amount INT, seq BIGINT"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return reader({key.lower(): value for key, value in self.options.items()})

    return SyntheticSource
