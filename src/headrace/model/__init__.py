"""Streams, windows, queries, sites and decisions: frozen, and valid once built."""

from headrace.model.decision import EpochDecision, Flush, GroupSchedule, Idle, ScheduleDecision
from headrace.model.ledger import Entry
from headrace.model.pipeline import EngineSettings, Pipeline, PlacementSettings, Site
from headrace.model.query import (
    Aggregate,
    Comparison,
    Finish,
    Join,
    JoinSide,
    NamedExpression,
    Operator,
    OrderKey,
    Output,
    Query,
    RowsAggregate,
    Scan,
    SinkSpec,
    Union,
    WindowAggregate,
    columns_of,
    streams_of,
)
from headrace.model.results import result_type
from headrace.model.stream import DEFAULT_AHEAD_US, DEFAULT_IDLE_US, Source, Stream
from headrace.model.types import Column, DataType, Kind
from headrace.model.window import HoppingWindow, RangeWindow, RowsWindow, SlidingWindow, TimeWindow

__all__ = [
    "DEFAULT_AHEAD_US",
    "DEFAULT_IDLE_US",
    "Aggregate",
    "Column",
    "Comparison",
    "DataType",
    "EngineSettings",
    "Entry",
    "EpochDecision",
    "Finish",
    "Flush",
    "GroupSchedule",
    "HoppingWindow",
    "Idle",
    "Join",
    "JoinSide",
    "Kind",
    "NamedExpression",
    "Operator",
    "OrderKey",
    "Output",
    "Pipeline",
    "PlacementSettings",
    "Query",
    "RangeWindow",
    "RowsAggregate",
    "RowsWindow",
    "Scan",
    "ScheduleDecision",
    "SinkSpec",
    "Site",
    "SlidingWindow",
    "Source",
    "Stream",
    "TimeWindow",
    "Union",
    "WindowAggregate",
    "columns_of",
    "result_type",
    "streams_of",
]
