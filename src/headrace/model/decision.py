"""What was decided for an epoch, and why, as it stands in the decisions log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

from headrace.model.admission import Admission
from headrace.model.joining import JoinDecision
from headrace.model.keyed import KeyedDecision
from headrace.model.plain import plain, restored
from headrace.model.shedding import SHEDDING, SheddingDecision
from headrace.model.table import TABLES, Snapshot, TablesDecision

__all__ = [
    "FIRST_BYTES",
    "SCHEDULE",
    "EpochDecision",
    "Flush",
    "GroupSchedule",
    "Idle",
    "Intake",
    "NodeDecision",
    "ScheduleDecision",
]


@dataclass(frozen=True, slots=True)
class Idle:
    """A stream that has been silent for long: unless it speaks in this epoch, it does not hold the others back."""

    stream: str
    reason: str


@dataclass(frozen=True, slots=True)
class Flush:
    """The streams have ended for now: every window that holds rows is answered.

    If some streams are named, only those have ended, and windows over others wait for these.
    """

    reason: str
    streams: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupSchedule:
    """How often the sub-groups of a group run, in event time, and what an execution is expected to cost.

    `costs_s` are seconds per execution, per pane and per answer now, `chosen_by_s` those the periods were chosen by.
    """

    group: str
    costs_s: tuple[float, float, float]
    chosen_by_s: tuple[float, float, float]
    periods_us: Mapping[str, int]
    reason: str


@dataclass(frozen=True, slots=True)
class ScheduleDecision:
    """By which policy executions are chosen and how many seconds they may take; None is as many as they need.

    With `as_asked` no query is answered more often than asked.
    """

    KIND: ClassVar[str] = "schedule"

    policy: str
    budget_s: float | None
    groups: tuple[GroupSchedule, ...]
    reason: str
    as_asked: bool = False


NodeDecision = JoinDecision | KeyedDecision | ScheduleDecision | SheddingDecision | TablesDecision
# The name under which the schedule of all aggregates is decided and remembered; no query can have it.
SCHEDULE = "*"

# Of files, as long as nothing is known: some seconds' worth on a small machine.
FIRST_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class Intake:
    """How much an epoch may take from all sources whose intake the engine sets: rows of messages, bytes of files."""

    rows: int
    reason: str
    bytes: int = FIRST_BYTES


@dataclass(frozen=True, slots=True)
class EpochDecision:
    """All that epoch `epoch` needs beyond its rows, written before anything acts and re-read on replay.

    `workload` names the file that says with which streams, queries and settings it was decided (`model/terms.py`).
    `wall_us` is the wall time rows are judged by, which never goes back; `listened_us` the time silence is measured by,
    which stands while the engine does not run (`policies/clock.py`); `seed` is what rows are hashed with for shedding.
    """

    epoch: int
    batch: int
    wall_us: int
    seed: int
    queries: tuple[str, ...]
    idle: tuple[Idle, ...] = ()
    flush: Flush | None = None
    nodes: Mapping[str, NodeDecision] = field(default_factory=dict)
    intake: Intake | None = None
    listened_us: int = 0
    admissions: Mapping[str, Admission] = field(default_factory=dict)  # by stream, of those that some edge sheds of
    workload: int = -1
    marks: Mapping[str, int | None] = field(default_factory=dict)  # watermarks that streams bring along
    since: Mapping[str, int] = field(default_factory=dict)  # by column of panes when the first of them begins

    @property
    def schedule(self) -> ScheduleDecision | None:
        """What was decided for all aggregates."""
        found = self.nodes.get(SCHEDULE)
        return found if isinstance(found, ScheduleDecision) else None

    @property
    def flows(self) -> dict[str, JoinDecision | KeyedDecision]:
        """What was decided for joins, row windows and functions."""
        found = self.nodes.items()
        return {name: node for name, node in found if isinstance(node, JoinDecision | KeyedDecision)}

    @property
    def shedding(self) -> SheddingDecision | None:
        """What was decided about shedding; None where nothing had to be judged, as in a flush."""
        found = self.nodes.get(SHEDDING)
        return found if isinstance(found, SheddingDecision) else None

    @property
    def tables(self) -> Mapping[str, Snapshot]:
        """By table the snapshot that rows are looked up in."""
        found = self.nodes.get(TABLES)
        return found.snapshots if isinstance(found, TablesDecision) else {}

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the inverse of `from_json`."""
        return cast(dict[str, Any], plain(self))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EpochDecision:
        """
        >>> d = EpochDecision(3, 2, 10, 7, ("q",), (Idle("s", "silent for 60 s"),), Flush("--flush"), listened_us=9)
        >>> EpochDecision.from_json(d.to_json()) == d
        True
        """
        return restored(cls, value)
