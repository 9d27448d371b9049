"""Rows that are staged in a database say which task and attempt wrote them: one attempt of each counts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

__all__ = ["TAGS", "tagged"]

TAGS = ("headrace_part", "headrace_attempt")


def tagged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows with the part they are of, and the attempt that writes them."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        tags = [
            pa.repeat(pa.scalar(tag, pa.int64()), batch.num_rows)
            for tag in (context.partitionId(), context.taskAttemptId())
        ]
        yield pa.RecordBatch.from_arrays([*batch.columns, *tags], [*batch.schema.names, *TAGS])
