"""How a Spark task learns what to do: the order travels as a property of the job, apart from the rows it runs over."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.kernels.chunks import open_filesystem

__all__ = ["Decoded", "Probe", "obey", "written"]

# The property of a job that holds its order.
ORDER = "headrace.order"


def written(order: Callable[[Any], Iterable[Any]]) -> str:
    """An order as text, the inverse of what tasks do."""
    return base64.b64encode(pickle.dumps(order)).decode()


def obey(items: Iterable[Any]) -> Iterator[Any]:
    """Does what the job's order says with the items of this task, mostly one number."""
    yield from _order()(items)


def _order() -> Callable[[Any], Iterable[Any]]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    order = context.getLocalProperty(ORDER)
    assert order is not None
    return pickle.loads(base64.b64decode(order))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Decoded:
    """Calls a task with the Arrow batches of its partition."""

    schema: pa.Schema
    task: Callable[[Iterator[pa.RecordBatch]], Iterable[Any]]

    def __call__(self, batches: Iterable[bytes]) -> Iterable[Any]:
        return self.task(pa.ipc.read_record_batch(pa.py_buffer(batch), self.schema) for batch in batches)


@dataclass(frozen=True)
class Probe:
    """Reads a file that the driver wrote, and writes one for it; yields what went wrong, or None."""

    uri: str
    sign: bytes

    def __call__(self, numbers: Iterable[int]) -> Iterator[str | None]:
        for number in numbers:
            try:
                filesystem, path = open_filesystem(self.uri)
                with filesystem.open_input_file(path) as file:
                    same = file.read() == self.sign
                with filesystem.open_output_stream(f"{path}-{number}") as out:
                    out.write(self.sign)
                yield None if same else f"{self.uri} has another content there"
            except Exception as error:  # whatever Arrow says, it means no
                yield f"{type(error).__name__}: {error}".splitlines()[0]
