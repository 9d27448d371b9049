"""A place of results has one kind of row: what a query writes where others of its results are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

from headrace.engine.state.storage import Storage
from headrace.errors import Problem, SpecError
from headrace.model import ANOTHER, ANOTHER_HINT, Query, Shape, why_another

__all__ = ["Delivered", "refuse_another", "shape_of"]


def shape_of(query: Query) -> Shape:
    """Names and types of a query's results, as Spark has judged them."""
    return tuple((output.name, str(output.type)) for output in query.finish.outputs)


def refuse_another(where: str, had: Shape | None, now: Shape, query: str) -> None:
    """SpecError if results would have other columns than those that are there."""
    why = None if had is None else why_another(had, now)
    if why is not None:
        raise SpecError(Problem(ANOTHER.format(where, why), query=query, hint=ANOTHER_HINT))


@dataclass(frozen=True)
class Delivered:
    """A note in the checkpoint for a sink that cannot tell: the last epoch it was given, and of what columns."""

    storage: Storage
    query: str

    @property
    def _path(self) -> str:
        return f"delivered/{self.query}"

    @property
    def _noted(self) -> dict[str, object]:
        found = json.loads(self.storage.read(self._path) or b"{}")
        return found if isinstance(found, dict) else {"epoch": found}

    @property
    def epoch(self) -> int:
        epoch = self._noted.get("epoch", -1)
        return epoch if isinstance(epoch, int) else -1

    def note(self, epoch: int) -> None:
        """Notes that an epoch was given."""
        self.storage.replace(self._path, json.dumps({**self._noted, "epoch": epoch}).encode())

    def forget(self) -> None:
        self.storage.delete(self._path)

    def claim(self, where: str, place: tuple[str, ...], columns: Shape) -> None:
        """Notes the columns that a place gets; SpecError if it had others from this query."""
        key = sha256(json.dumps(place).encode()).hexdigest()
        noted = self._noted
        if noted.get("place") == key and isinstance(had := noted.get("columns"), list):
            refuse_another(where, tuple((name, type_) for name, type_ in had), columns, self.query)
        noted |= {"place": key, "columns": columns}
        self.storage.replace(self._path, json.dumps(noted).encode())
