"""A table that the rows of streams are looked up in, and the snapshots that are taken of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.model.remembered import Remembered
from headrace.model.stream import Source
from headrace.model.types import Column
from headrace.units import format_bytes

__all__ = [
    "CATALOG",
    "DEFAULT_LIMIT_BYTES",
    "ON_ERROR",
    "TABLES",
    "LookupState",
    "Snapshot",
    "Table",
    "TablesDecision",
    "TablesState",
]

# The name under which snapshots of all tables are decided and remembered; no query can have it.
TABLES = "*tables"
# The format of a table of Spark's catalog, which its path names.
CATALOG = "catalog"
# What a table that cannot be read does to a run: it ends, or goes on with what was read before.
ON_ERROR = ("stop", "keep")
# A snapshot is written anew at each refresh, and kept twice while epochs use the old one.
DEFAULT_LIMIT_BYTES = 1 << 30
_NAME = re.compile(r"\w{1,128}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns, where it is read from, how often, and how large a snapshot of it may be.

    `source` is None when the caller brings a DataFrame. Without `refresh_us` it is read when a run starts.
    """

    name: str
    columns: tuple[Column, ...]
    source: Source | None = None
    refresh_us: int | None = None
    limit_bytes: int = DEFAULT_LIMIT_BYTES
    on_error: str = "stop"

    def __post_init__(self) -> None:
        if not self.columns:
            raise ValueError(f"table '{self.name}' has no columns")
        if self.refresh_us is not None and self.refresh_us <= 0:
            raise ValueError(f"table '{self.name}': refresh must be longer than nothing")
        if self.limit_bytes <= 0:
            raise ValueError(f"table '{self.name}': limit must be more than 0, not {format_bytes(self.limit_bytes)}")
        if self.on_error not in ON_ERROR:
            raise ValueError(f"table '{self.name}': unknown on_error '{self.on_error}'; known: {', '.join(ON_ERROR)}")

    @property
    def definition(self) -> str:
        """A name made of what is read, and as which columns: a snapshot of another definition is of no use."""
        return hashlib.sha256(repr((self.source, self.columns)).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a table held when it was read: files in a folder of the checkpoint, which `folder` names.

    `tried_us` is when a newer one was wanted, in vain. Times are those of the engine's wall clock.
    """

    folder: str
    definition: str
    read_us: int
    rows: int
    bytes: int
    reason: str
    tried_us: int | None = None

    def __post_init__(self) -> None:
        _refuse_places([self.folder])


def _refuse_places(names: Iterable[str]) -> None:
    """ValueError for what is no plain name: a checkpoint is not trusted to name places."""
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r:.100} names no table and no snapshot")


@dataclass(frozen=True, slots=True)
class TablesDecision:
    """By table the snapshot that an epoch looks its rows up in."""

    KIND: ClassVar[str] = "tables"

    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_places(self.snapshots)


@dataclass(frozen=True)
class LookupState(Remembered):
    """Nothing but that a lookup has been there: what reads its results goes on after a restart."""

    KIND: ClassVar[str] = "lookup"

    forms: tuple[str, ...] = ()


@dataclass(frozen=True)
class TablesState(Remembered):
    """By table the snapshot that the last epoch used; older ones are gone."""

    KIND: ClassVar[str] = "tables"

    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _refuse_places(self.snapshots)

    @property
    def outlives_queries(self) -> bool:
        return True
