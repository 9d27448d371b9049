"""What an epoch finds when it begins: the workload, the queries that run, and what the epoch before left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.engine.sinks.choose import Sink
from headrace.engine.state.checkpoint import Manifest
from headrace.model import Admission, Stream, Table, streams_of
from headrace.planning import FlowPlan, Workload, plan_admissions, streams_read
from headrace.policies import StreamClock, watermark_of

__all__ = ["Standing"]


@dataclass(frozen=True)
class Standing:
    """The engine between two epochs. `streams` are the declared ones; a workload may derive others from them.

    `tables` are those that rows may be looked up in.
    """

    streams: tuple[Stream, ...]
    workload: Workload
    sinks: Mapping[str, Sink]
    manifest: Manifest
    tables: tuple[Table, ...] = ()

    @cached_property
    def live(self) -> tuple[str, ...]:
        """The queries that run."""
        return tuple(name for name in self.workload.queries if self.manifest.queries[name].runs)

    @cached_property
    def flows(self) -> dict[str, FlowPlan]:
        """What is made of rows as they come for the queries that run."""
        nodes = self.workload.under(self.live)
        return {name: plan for name, plan in self.workload.flows.items() if name in nodes}

    @cached_property
    def clocks(self) -> dict[str, StreamClock]:
        """The time of every stream, derived ones included."""
        names = (*(stream.name for stream in self.streams), *self.workload.derived)
        return {name: self.manifest.clocks.get(name, StreamClock()) for name in names}

    @cached_property
    def read_together(self) -> tuple[tuple[str, ...], ...]:
        """By query the declared streams it reads."""
        return tuple(streams_read(plan) for plan in self.workload.queries.values())

    def admissions(
        self,
        keep: Mapping[str, float],
        seed: int,
        buckets: Mapping[str, tuple[float, ...]] | None = None,
        keyed: Mapping[str, float] | None = None,
    ) -> dict[str, Admission]:
        """By stream how its edges shed, given the fraction that each keeps: of rows, by bucket, or of a join's keys."""
        used = self.workload.columns_in_use(self.streams) if keep else {}
        return plan_admissions((*self.streams, *self.workload.derived_streams), used, keep, seed, buckets, keyed)

    def lifetime(self, query: str, clocks: Mapping[str, StreamClock]) -> tuple[int | None, bool]:
        """When the lifetime of a query ends, and whether time has passed that."""
        plan, ends = self.workload.queries[query].query, self.manifest.queries[query].ends_us
        now = None if plan.lifetime_us is None else watermark_of(clocks, streams_of(plan.root))
        if now is None or plan.lifetime_us is None:
            return ends, False
        ends = now + plan.lifetime_us if ends is None else ends
        return ends, now >= ends
