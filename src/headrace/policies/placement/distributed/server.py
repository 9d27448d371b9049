"""What the server at a site does with messages: it runs what it is told to, and sources start the placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.policies.placement.distributed.messages import (
    InvalidateMap,
    Map,
    Message,
    OperatorMapped,
    Send,
)
from headrace.policies.placement.distributed.table import Configuration

__all__ = ["Entry", "ServerState", "serve"]


@dataclass(frozen=True, slots=True)
class Entry:
    """The last a server heard of an operator; without a configuration it runs elsewhere."""

    version: int
    configuration: Configuration | None


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server knows of operators, those it no longer runs included: an old message may still come.

    `started` are the sources at its site whose MAP it has forwarded.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    started: frozenset[str] = frozenset()

    @property
    def running(self) -> tuple[str, ...]:
        return tuple(name for name, entry in self.entries.items() if entry.configuration is not None)


def serve(state: ServerState, message: Message, route: tuple[str, ...] = ()) -> tuple[ServerState, tuple[Send, ...]]:
    """The state after a message, and what is sent on. `route` are the sites it passed, its sender first.

    A source is the coordinator of a leaf: it forwards its MAP with the sites between the proxy and itself as candidates
    (section 4.4). What is older than what the server has heard changes nothing.
    """
    match message:
        case OperatorMapped(operator, configuration, version=version):
            return _heard(state, operator, Entry(version, configuration)), ()
        case InvalidateMap(operator, version):
            return _heard(state, operator, Entry(version, None)), ()
        case Map(operator) if operator in state.started:
            return state, ()
        case Map(operator):
            forwarded = Send(message.path[0].coordinator, replace(message, candidates=route[1:-1]))
            return replace(state, started=state.started | {operator}), (forwarded,)
    raise ValueError(f"a server takes OPERATOR_MAPPED, INVALIDATE_MAP and MAP, not {message.kind}")


def _heard(state: ServerState, operator: str, entry: Entry) -> ServerState:
    known = state.entries.get(operator)
    if known is not None and known.version > entry.version:
        return state
    return replace(state, entries={**state.entries, operator: entry})
