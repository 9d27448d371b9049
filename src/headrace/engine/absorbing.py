"""The one pass over rows that keeps for all operators what they take: panes, and rows in slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from headrace.engine.operators.port import Operator, Taking
from headrace.engine.operators.projection import projection, text_literal
from headrace.engine.spark.arrow_rows import arrow_schema
from headrace.engine.standing import Standing
from headrace.engine.state.retention import EVER
from headrace.engine.state.state_io import StateIo
from headrace.engine.trial import Trial
from headrace.kernels.absorb import Absorbed, AbsorbTask, Bounds, EpochColumns
from headrace.model import EpochDecision, Stream, threshold
from headrace.planning import Workload

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["Absorbing"]

# By stream the columns that its rows are hashed by; none where every edge keeps everything.
Hashed = tuple[tuple[str, tuple[str, ...]], ...]


class Absorbing:
    """Absorbs the rows of streams; remembers, while the workload stays the same, the SQL of the pass."""

    def __init__(
        self,
        io: StateIo,
        folder: str,
        bins: int,
        operators: Sequence[Operator],
        corrupt: frozenset[str],
        trial: Trial,
        probe: Callable[[str], None],
    ) -> None:
        self._io, self._folder, self._bins, self._operators = io, folder, bins, tuple(operators)
        self._corrupt, self._trial, self._probe = corrupt, trial, probe
        self._workload: Workload | None = None
        self._parts: dict[tuple[str, ...], Workload] = {}
        self._projections: dict[tuple[tuple[str, ...], Hashed], EpochColumns] = {}
        self._schemas: dict[tuple[tuple[str, ...], Hashed], pa.Schema] = {}

    def declared(
        self, standing: Standing, decision: EpochDecision, bounds: tuple[Bounds, ...], batch: DataFrame
    ) -> tuple[Absorbed, dict[str, str]]:
        """Absorbs an epoch's rows; beside what they made, the causes of the queries for which that cannot be done."""

        def over_rows(names: tuple[str, ...], trial: bool) -> Absorbed:
            if not trial:
                self._probe("mid-state")
            taking, shape = self._shape(standing.workload, names, standing.streams, decision, self._corrupt)
            rows = batch.selectExpr(*shape.bound(bounds, *_hashes(standing.streams, decision, taking)))
            key = names, _hashed(standing.streams, decision)
            if key not in self._schemas:
                self._schemas[key] = arrow_schema(rows)
            folder, keep = None if trial else self._folder, _keep(standing.streams, decision)
            keyed = {edge: part for each in decision.admissions.values() for edge, part in each.keyed.items()}
            task = AbsorbTask(
                folder, decision.epoch, bounds, shape, taking.slicings, keep, taking.counted, _buckets(decision), keyed
            )
            return sum(self._io.over(rows, self._schemas[key], task, makes_files=not trial), Absorbed())

        return self._trial.absorb(over_rows, standing.live)

    def derived(
        self, standing: Standing, decision: EpochDecision, live: tuple[str, ...], stream: Stream, rows: DataFrame
    ) -> tuple[Absorbed, dict[str, str]]:
        """Absorbs rows that an operator made, all of which are admitted, for the live queries above it.

        Beside what they made, the causes of the queries for which that cannot be done.
        """
        bounds = (Bounds(*EVER),)
        fields = ", ".join(f"{text_literal(column.name)}, `{column.name}`" for column in stream.columns)
        made = rows.selectExpr("0 AS _s", f"named_struct({fields}) AS {stream.name}")

        def over_rows(names: tuple[str, ...], trial: bool) -> Absorbed:
            taking, shape = self._shape(standing.workload, names, (stream,), decision)
            projected = made.selectExpr(*shape.bound(bounds, *_hashes((stream,), decision, taking)))
            folder, keep = None if trial else self._folder, _keep((stream,), decision)
            task = AbsorbTask(folder, decision.epoch, bounds, shape, taking.slicings, keep)
            return sum(self._io.over(projected, arrow_schema(projected), task, makes_files=not trial), Absorbed())

        above = standing.workload.queries_over(standing.workload.derived[stream.name].name)
        return self._trial.feed(over_rows, [name for name in live if name in above])

    def _shape(
        self,
        workload: Workload,
        names: tuple[str, ...],
        streams: tuple[Stream, ...],
        decision: EpochDecision,
        corrupt: frozenset[str] = frozenset(),
    ) -> tuple[Taking, EpochColumns]:
        """What some queries take of some streams, and the SQL that gives it to them."""
        if workload is not self._workload:
            self._workload = workload
            for remembered in (self._parts, self._projections, self._schemas):
                remembered.clear()
        if names not in self._parts:
            self._parts[names] = workload.only(names)
        taking = sum((operator.takes(self._parts[names], decision) for operator in self._operators), Taking())
        own, key = [stream.name for stream in streams], (names, _hashed(streams, decision))
        if key not in self._projections:
            kept = [each for each in taking.kept if any(feed.stream in own for feed in each.synopsis.feeds)]
            stores = [each for each in taking.stores if any(feed.stream in own for feed in each.feeds)]
            hashed = {name: each.hashed for name, each in decision.admissions.items() if name in own and each.hashed}
            self._projections[key] = projection(streams, kept, self._bins, corrupt, stores, hashed, taking.protected)
        return taking, self._projections[key]


def _hashed(streams: Sequence[Stream], decision: EpochDecision) -> Hashed:
    admissions = [decision.admissions.get(stream.name) for stream in streams]
    return tuple((s.name, () if a is None else a.hashed) for s, a in zip(streams, admissions, strict=True))


def _hashes(streams: Sequence[Stream], decision: EpochDecision, taking: Taking) -> tuple[list[int], list[int]]:
    """By stream the seed of its hashes, and the greatest hash of a row that some edge keeps."""
    admissions = [decision.admissions.get(stream.name) for stream in streams]
    seeds = [0 if admission is None else admission.seed for admission in admissions]
    most = [1.0 if a is None else a.most_of(taking.edges_of(s.name)) for s, a in zip(streams, admissions, strict=True)]
    # Spark cannot read the least number as a literal.
    return seeds, [min(max(threshold(part), 1 - 2**63), 2**63 - 1) for part in most]


def _buckets(decision: EpochDecision) -> dict[str, tuple[float, ...]]:
    return {edge: parts for a in decision.admissions.values() for edge, parts in a.buckets.items()}


def _keep(streams: Sequence[Stream], decision: EpochDecision) -> dict[str, float]:
    names = {stream.name for stream in streams}
    return {edge: keep for name, a in decision.admissions.items() if name in names for edge, keep in a.keep.items()}
