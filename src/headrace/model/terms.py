"""What an epoch is decided under beside what the epoch before left: streams, queries and settings, as plain values.

Secrets are no part of it: options that hold one are named and not told (`withheld`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.message import Decoding
from headrace.model.pipeline import EngineSettings
from headrace.model.shedding import QueryShedding
from headrace.model.stream import DEFAULT_AHEAD_US, DEFAULT_IDLE_US

__all__ = ["QueryTerms", "SettingTerms", "SinkTerms", "StepTerms", "StreamTerms", "TableTerms"]

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """A stream: names and types of its columns, its time, and how its texts are read.

    Where it is read from is not here: a checkpoint belongs to that from its beginning.
    """

    columns: Pairs
    time: str
    lateness_us: int
    ahead_us: int = DEFAULT_AHEAD_US
    idle_us: int = DEFAULT_IDLE_US
    reading: Pairs = ()
    value: Decoding | None = None
    expect: Pairs = ()  # what is expected, and what follows if it is not so
    as_panes: bool = False
    select: str | None = None
    reads: Pairs = ()  # of a stream with a `select`, the columns of its source


@dataclass(frozen=True, slots=True)
class TableTerms:
    """A table: names and types of its columns. Rows are looked up in snapshots, which decisions name."""

    columns: Pairs


@dataclass(frozen=True, slots=True)
class SinkTerms:
    """Where results go; `withheld` names what is secret of it, `path` or options."""

    format: str
    path: str | None = None
    options: Pairs = ()
    withheld: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    latest: str | None = None


@dataclass(frozen=True, slots=True)
class StepTerms:
    """A function with state: its name, and the columns of its tables."""

    function: str
    state: Pairs
    results: Pairs
    version: int
    migration: str | None


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query: its SQL, where its results go, and how it is treated."""

    sql: str
    sink: SinkTerms
    priority: int = 0
    weight: float = 1.0
    lifetime_us: int | None = None
    step: StepTerms | None = None
    shedding: QueryShedding = field(default_factory=QueryShedding)
    expect: Pairs = ()


@dataclass(frozen=True, slots=True)
class SettingTerms:
    """Settings of the engine, and what `spark.headrace.*` was set to."""

    trigger_us: int = EngineSettings().trigger_us
    schedule: str = EngineSettings().schedule
    join: str = EngineSettings().join
    shedding: str = EngineSettings().shedding
    backlog: str = EngineSettings().backlog
    objective: str = EngineSettings().objective
    tuning: Mapping[str, str] = field(default_factory=dict)

    def engine(self) -> EngineSettings:
        """The engine's part of a pipeline."""
        return EngineSettings(
            self.trigger_us,
            schedule=self.schedule,
            join=self.join,
            shedding=self.shedding,
            backlog=self.backlog,
            objective=self.objective,
        )
