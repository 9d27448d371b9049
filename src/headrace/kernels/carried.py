"""Files that Spark carries for a task: what it needs comes with its rows, what it makes leaves with its results.

Tasks read and write state through `chunks`. Where they cannot reach the file system themselves, whoever calls a task
opens a box around it: `chunks` then finds parts in the box, and puts whole files there, instead of opening any.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from headrace.kernels.chunks import Part

__all__ = ["Box", "Made", "box", "current_box"]


@dataclass(frozen=True, slots=True)
class Made:
    """A file a task has made: the folder and name it is to have, and its bytes."""

    folder: str
    name: str
    data: pa.Buffer


@dataclass
class Box:
    """Parts of chunks that came with a task, by name of the chunk, and the files it has made so far."""

    parts: dict[str, list[tuple[Part, bytes]]] = field(default_factory=dict)
    made: list[Made] = field(default_factory=list)


# A Python worker runs one task at a time.
_box: Box | None = None


def current_box() -> Box | None:
    """The box around this task, if it has one."""
    return _box


@contextmanager
def box() -> Iterator[Box]:
    """Opens a box around what runs inside the `with`."""
    global _box
    _box = Box()
    try:
        yield _box
    finally:
        _box = None
