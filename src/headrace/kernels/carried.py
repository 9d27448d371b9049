"""How a task gets at the state it reads and writes where it cannot open files: in a box that Spark carries for it.

Tasks read and write state through `chunks`. Where they cannot reach the file system themselves, whoever calls a task
opens a box around it: `chunks` then finds parts in the box, and puts whole files there, instead of opening any. What is
brought to a task is what its order `wants`, which the driver asks before the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from headrace.kernels.chunks import Part

__all__ = ["Box", "Made", "NotCarried", "Order", "Want", "box", "current_box", "need"]


@dataclass(frozen=True, slots=True)
class Want:
    """Parts of one chunk: those of a synopsis or store, and of some of its bins or slices; None: of all of them."""

    chunk: str
    id: str
    numbers: frozenset[int] | None = None

    def covers(self, id_: str, number: int) -> bool:
        """Whether a part is among those wanted; names of a store's parts may go on after its id."""
        return id_.startswith(self.id) and (self.numbers is None or number in self.numbers)


class Order(Protocol):
    """What the tasks of a job do, each with its number; a plain value that travels to them."""

    def wants(self, number: int, /) -> Iterable[Want]:
        """What the task of this number reads."""

    def __call__(self, numbers: Iterable[int], /) -> Iterable[Any]:
        """Does the work of these numbers and yields what there is to report."""


class NotCarried(Exception):
    """A task needs parts that were not brought to it; it has changed nothing, and is to be run again with them."""

    def __init__(self, wants: tuple[Want, ...]) -> None:
        super().__init__(wants)
        self.wants = wants


@dataclass(frozen=True, slots=True)
class Made:
    """A file a task has made: the folder and name it is to have, and its bytes."""

    folder: str
    name: str
    data: pa.Buffer


@dataclass
class Box:
    """What was brought to a task, the parts by name of their chunk, and the files it has made so far."""

    brought: list[Want] = field(default_factory=list)
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


def need(wants: Iterable[Want]) -> None:
    """Asks for parts that the driver may not have known of; NotCarried where they would have to be brought first.

    A task that opens files by itself has everything.
    """
    if _box is None:
        return
    brought: dict[tuple[str, str], list[frozenset[int] | None]] = {}
    for want in _box.brought:
        brought.setdefault((want.chunk, want.id), []).append(want.numbers)
    lacking = tuple(want for want in wants if not _among(want.numbers, brought.get((want.chunk, want.id), [])))
    if lacking:
        raise NotCarried(lacking)


def _among(numbers: frozenset[int] | None, brought: list[frozenset[int] | None]) -> bool:
    if None in brought:
        return True
    return numbers is not None and numbers <= frozenset[int]().union(*(each for each in brought if each is not None))
