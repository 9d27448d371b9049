"""Placement without a centre: coordinators of zones and servers, each a pure function of the messages it hears."""

from headrace.policies.placement.distributed.coordinator import ZoneState, coordinate
from headrace.policies.placement.distributed.messages import (
    AddSubtree,
    InvalidateMap,
    Map,
    Measure,
    Measured,
    Message,
    OperatorMapped,
    OperatorRemapped,
    Rules,
    Send,
    Step,
    Task,
    ToServer,
    ToZone,
    Variant,
)
from headrace.policies.placement.distributed.server import Entry, ServerState, serve
from headrace.policies.placement.distributed.table import Configuration, Table
from headrace.policies.placement.distributed.view import View
from headrace.policies.placement.distributed.workload import Workload, workload_of

__all__ = [
    "AddSubtree",
    "Configuration",
    "Entry",
    "InvalidateMap",
    "Map",
    "Measure",
    "Measured",
    "Message",
    "OperatorMapped",
    "OperatorRemapped",
    "Rules",
    "Send",
    "ServerState",
    "Step",
    "Table",
    "Task",
    "ToServer",
    "ToZone",
    "Variant",
    "View",
    "Workload",
    "ZoneState",
    "coordinate",
    "serve",
    "workload_of",
]
