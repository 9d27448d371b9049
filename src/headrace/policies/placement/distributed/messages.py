"""What coordinators and servers tell each other: the five messages of figure 4, and the distances they ask for.

    proxy ──ADD_SUBTREE──▶ coordinator of every zone
    proxy ──OPERATOR_MAPPED, MAP──▶ source ──MAP──▶ coordinator ──MAP──▶ coordinator of the zone above ──▶ … ──▶ proxy
                                             coordinator ──OPERATOR_MAPPED──▶ servers of its zone
    coordinator ──OPERATOR_REMAPPED──▶ coordinator of a zone below ──INVALIDATE_MAP, OPERATOR_MAPPED──▶ its servers

Messages may be lost and sent again, come late, twice and in any order. What a later decision replaces is told apart by
its *version*: 0 is what a zone decided by itself, 1 what the zone above it decided, 2 what the zone above that did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from headrace.policies.placement.distributed.table import Configuration, Table
from headrace.policies.placement.distributed.view import View
from headrace.policies.placement.problem import Flow

__all__ = [
    "AddSubtree",
    "Ancestor",
    "Distances",
    "InvalidateMap",
    "Map",
    "Message",
    "OperatorMapped",
    "OperatorRemapped",
    "Rules",
    "Send",
    "Task",
    "ToServer",
    "ToZone",
    "Variant",
    "WantDistances",
]

# The strategies that coordinators know, as a pipeline file names them.
Variant: TypeAlias = Literal["edge", "edge+", "in-network"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What all coordinators of one tree go by. `ranked` is the k of section 3.4."""

    variant: Variant
    proxy: str
    max_latency_ms: float | None
    ranked: int

    @property
    def needs_distances(self) -> bool:
        """Whether a decision depends on them: Edge counts bytes, and asks how far only to keep to a bound."""
        return self.variant != "edge" or self.max_latency_ms is not None


@dataclass(frozen=True, slots=True)
class Task:
    """An operator that a coordinator places, and what feeds it."""

    operator: str
    inputs: tuple[Flow, ...]


@dataclass(frozen=True, slots=True)
class ToZone:
    """The coordinator of a zone: whoever is the root of `key` in the overlay."""

    zone: str
    key: str


@dataclass(frozen=True, slots=True)
class ToServer:
    """The server at a site; `routed` over the overlay, or straight to its address."""

    site: str
    routed: bool = False


@dataclass(frozen=True, slots=True)
class Ancestor:
    """One ancestor on a path from a leaf to the root (LR path), with what the proxy knows of it before placement.

    `home` is the site of one that cannot move. `leaves` are the places of the sources below it (dl of section 3.2),
    `common` those below all of its inputs (cl).
    """

    operator: str
    coordinator: ToZone
    home: str | None
    leaves: tuple[str, ...]
    common: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddSubtree:
    """The proxy gives a coordinator its zone: operators, each after its inputs, and the children at the boundary.

    `places` are those of all sources and of whatever else cannot move, in an order that settles ties. `view` has the
    distances that the proxy knows, those between these places and itself.
    """

    kind: ClassVar[str] = "ADD_SUBTREE"
    zone: str
    tasks: tuple[Task, ...]
    boundary: Mapping[str, ToZone | ToServer]
    rules: Rules
    places: tuple[str, ...]
    view: View


@dataclass(frozen=True, slots=True)
class OperatorMapped:
    """A server runs an operator from now on."""

    kind: ClassVar[str] = "OPERATOR_MAPPED"
    operator: str
    configuration: Configuration
    alternatives: Table
    version: int = 0


@dataclass(frozen=True, slots=True)
class Map:
    """An operator has a place, so the operator above it may be placed."""

    kind: ClassVar[str] = "MAP"
    operator: str
    place: str
    table: Table
    leaves: tuple[str, ...]
    path: tuple[Ancestor, ...]
    view: View
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InvalidateMap:
    """A server runs an operator no longer."""

    kind: ClassVar[str] = "INVALIDATE_MAP"
    operator: str
    version: int


@dataclass(frozen=True, slots=True)
class OperatorRemapped:
    """The zone above wants the root of a zone at another place of its table."""

    kind: ClassVar[str] = "OPERATOR_REMAPPED"
    operator: str
    place: str
    version: int


@dataclass(frozen=True, slots=True)
class Distances:
    """The distances that a coordinator asked for, both ways."""

    operator: str
    view: View


Message: TypeAlias = AddSubtree | OperatorMapped | Map | InvalidateMap | OperatorRemapped


@dataclass(frozen=True, slots=True)
class Send:
    """A message for someone."""

    to: ToZone | ToServer
    message: Message


@dataclass(frozen=True, slots=True)
class WantDistances:
    """Pairs of sites whose distance is wanted to place an operator; one message to measure each."""

    operator: str
    pairs: tuple[tuple[str, str], ...]
