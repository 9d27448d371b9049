"""Placement without a centre: coordinators of zones and servers, each a pure function of the messages it hears."""

from headrace.policies.placement.distributed.coordinator import ZoneState, coordinate
from headrace.policies.placement.distributed.messages import (
    AddSubtree,
    Ancestor,
    Distances,
    InvalidateMap,
    Map,
    Message,
    OperatorMapped,
    OperatorRemapped,
    Rules,
    Send,
    Task,
    ToServer,
    ToZone,
    Variant,
    WantDistances,
)
from headrace.policies.placement.distributed.server import Entry, ServerState, serve
from headrace.policies.placement.distributed.table import Configuration, Table
from headrace.policies.placement.distributed.view import View
from headrace.policies.placement.distributed.workload import Workload, workload_of

__all__ = [
    "AddSubtree",
    "Ancestor",
    "Configuration",
    "Distances",
    "Entry",
    "InvalidateMap",
    "Map",
    "Message",
    "OperatorMapped",
    "OperatorRemapped",
    "Rules",
    "Send",
    "ServerState",
    "Table",
    "Task",
    "ToServer",
    "ToZone",
    "Variant",
    "View",
    "WantDistances",
    "Workload",
    "ZoneState",
    "coordinate",
    "serve",
    "workload_of",
]
