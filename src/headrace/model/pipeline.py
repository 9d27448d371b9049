"""A whole pipeline: streams, queries, engine settings, sites."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from headrace.model.link import LinkSettings
from headrace.model.network import Network
from headrace.model.query import Query
from headrace.model.stream import Stream
from headrace.model.table import Table
from headrace.units import SECOND_US, format_duration

__all__ = ["EngineSettings", "Pipeline", "PlacementSettings", "Site"]

SCHEDULES = ("none", "aggressive", "conservative", "hybrid", "hybrid-late", "hybrid-late-pending")
JOINS = ("auto", "hash", "split", "biclique", "hybrid")
SHEDDING = ("off", "fit", "central")
BACKLOGS = ("keep", "shed")
OBJECTIVES = ("throughput", "fair", "priority")
# Spark counts triggers in milliseconds; an epoch that comes less than once a week is not a stream's.
LEAST_TRIGGER_US, MOST_TRIGGER_US = 1_000, 7 * 86_400 * SECOND_US
# As Maven names a package: group, artifact, version.
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
STRATEGIES = ("optimal", "edge", "edge+", "in-network", "warehouse")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How one site runs; `trigger_us` is the time an epoch may take.

    `shedding` says how it is planned what to shed, `backlog` what becomes of rows that gathered while nothing ran, and
    `objective` what plans maximise: rows by weight, the least share of any query, or rows by priority.

    `packages` (Maven coordinates) and `jars` are what Spark needs beside its own; `metrics` is a port, 0 any free one.
    """

    trigger_us: int = SECOND_US
    checkpoint: str | None = None
    schedule: str = "hybrid-late-pending"
    join: str = "auto"
    shedding: str = "off"
    bins: int | None = None
    conf: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    metrics: int | None = None
    backlog: str = "keep"
    objective: str = "throughput"

    def __post_init__(self) -> None:
        for name, value, known in (
            ("schedule", self.schedule, SCHEDULES),
            ("join", self.join, JOINS),
            ("shedding", self.shedding, SHEDDING),
            ("backlog", self.backlog, BACKLOGS),
            ("objective", self.objective, OBJECTIVES),
        ):
            if value not in known:
                raise ValueError(f"unknown {name} '{value}'; known: {', '.join(known)}")
        if self.trigger_us != 0 and not LEAST_TRIGGER_US <= self.trigger_us <= MOST_TRIGGER_US:
            raise ValueError(
                f"trigger must be from {format_duration(LEAST_TRIGGER_US)} to {format_duration(MOST_TRIGGER_US)}, or 0 "
                f"for epochs without a pause, not {format_duration(self.trigger_us)}"
            )
        if self.bins is not None and not 1 <= self.bins <= 4096:
            raise ValueError(f"bins must be between 1 and 4096, not {self.bins}")
        for package in self.packages:
            if not _COORDINATES.fullmatch(package):
                raise ValueError(f"'{package}' is not a package; write group:artifact:version")
        if self.metrics is not None and not 0 <= self.metrics <= 65535:
            raise ValueError(f"metrics must be a port between 0 and 65535, not {self.metrics}")


@dataclass(frozen=True, slots=True)
class Site:
    """A place that runs one Spark application; answers are wanted at the proxy.

    `streams` are born there, some of them at other sites too. `capacity_bytes_per_s` is what its operators may read
    together, None anything. `at` is latitude and longitude in degrees, for maps.
    """

    name: str
    streams: tuple[str, ...] = ()
    proxy: bool = False
    cores: int | None = None
    capacity_bytes_per_s: float | None = None
    at: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.cores is not None and self.cores < 1:
            raise ValueError(f"site '{self.name}' has at least 1 core, not {self.cores}")
        capacity = self.capacity_bytes_per_s
        if capacity is not None and not (math.isfinite(capacity) and capacity > 0):
            raise ValueError(f"site '{self.name}' has a capacity of more than 0 bytes per second, not {capacity:g}")
        if self.at is not None and not (abs(self.at[0]) <= 90 and abs(self.at[1]) <= 180):
            raise ValueError(f"site '{self.name}' is at latitude {self.at[0]:g}, longitude {self.at[1]:g}: nowhere")


@dataclass(frozen=True, slots=True)
class PlacementSettings:
    """How operators are placed on sites, and how long the longest path from a stream to the answers may take."""

    strategy: str = "optimal"
    max_latency_us: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ValueError(f"unknown placement strategy '{self.strategy}'; known: {', '.join(STRATEGIES)}")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything a pipeline file says, bound and checked.

    `network` has the milliseconds between each two of `sites`, and is None if there are none. `notes` say what is to
    be known of the file besides; they are no part of what it means.
    """

    name: str
    streams: tuple[Stream, ...]
    queries: tuple[Query, ...]
    output: str = "out"
    engine: EngineSettings = field(default_factory=EngineSettings)
    sites: tuple[Site, ...] = ()
    placement: PlacementSettings = field(default_factory=PlacementSettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    network: Network | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)
    tables: tuple[Table, ...] = ()

    def stream(self, name: str) -> Stream:
        """The stream of that name; KeyError if there is none."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(name)

    @property
    def born_apart(self) -> str | None:
        """Which stream is born at more than one site, and where, if there is one: no single run reads it."""
        for stream in self.streams:
            if len(sites := self.birthplaces(stream.name)) > 1:
                return f"stream '{stream.name}' is born at sites {', '.join(sites)}"
        return None

    def birthplaces(self, stream: str) -> tuple[str, ...]:
        """The sites where a stream is born; none in a pipeline without sites."""
        return tuple(site.name for site in self.sites if stream in site.streams)
