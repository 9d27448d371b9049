"""The operator of lookups: rows of an epoch joined by Spark with snapshots of tables, for the nodes above.

A snapshot is a copy of a table under the checkpoint, taken before the decision that names it. So a replay looks rows up
in what the epoch had, whatever the table holds by then. The pass over the rows leaves what a lookup needs of them in
chunks of one epoch, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.failures import cause_of
from headrace.engine.operators.port import Ask, Checked, Decided, Made, Moment, Taking
from headrace.engine.sources.tables import Tables
from headrace.engine.standing import Standing
from headrace.engine.state.state_io import StateIo
from headrace.errors import EngineError, Problem, SpecError
from headrace.kernels.absorb import Absorbed, Slicing
from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.select import SELECTED, SelectRows, SelectWork
from headrace.model import (
    TABLES,
    EpochDecision,
    LookupState,
    Snapshot,
    TablesDecision,
    TablesState,
    shown,
)
from headrace.planning import FlowPlan, LookupPlan, NodeState, Workload
from headrace.policies import Current, StreamClock, decide_refresh, watermark_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LookupOperator"]

_SLICING = Slicing(slices=1, kind=SELECTED, passing=True)
_SPARK = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}


class LookupOperator:
    """Runs all lookups, and reads the tables they need; see `Operator`."""

    def __init__(
        self,
        io: StateIo,
        folder: str,
        tables: Tables,
        probe: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._io, self._folder, self._tables, self._probe, self._note = io, folder, tables, probe, note
        self._begun: set[str] = set()  # tables that this run has used

    def check(self, checked: Checked) -> None:
        """A table of which there is no snapshot yet has to be there, as it was declared."""
        known, problems = _snapshots(checked.state), list[Problem]()
        for name in _tables(checked.flows):
            if name in known or not self._tables.can_read(name):
                continue
            try:
                self._tables.read(name)
            except EngineError as failure:
                problems.append(Problem(str(failure)))
        if problems:
            raise SpecError(problems)

    # decide ----------------------------------------------------------------------------------------------------------

    def decide(self, ask: Ask) -> Decided:
        known, names = _snapshots(ask.standing.manifest.nodes), _tables(ask.standing.flows)
        if not names and not known:
            return Decided()
        chosen = {name: self._current(name, known.get(name), ask) for name in names}
        self._probe("after-snapshots")
        return Decided({TABLES: TablesDecision(chosen)})

    def _current(self, name: str, known: Snapshot | None, ask: Ask) -> Snapshot:
        """The snapshot that the coming epoch uses; a new one if the table is to be read."""
        table = self._tables.known[name]
        chosen = decide_refresh(table, known, ask.wall_us, name not in self._begun)
        self._begun.add(name)
        if isinstance(chosen, Current):
            return chosen.snapshot
        try:
            return self._tables.take(name, ask.epoch, ask.wall_us, chosen.reason)
        except EngineError as failure:
            if table.on_error != "keep" or chosen.or_else is None:
                raise
            self._note(f"{failure}: the run goes on with what was read of it before")
            return replace(chosen.or_else, tried_us=ask.wall_us, reason=shown(f"kept: {failure}"))

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        # Lookups that need the same of the same rows have one store.
        stores = {store.id: store for plan in _lookups(part.flows).values() for store in plan.stores}
        return Taking(stores=tuple(stores.values()), slicings=dict.fromkeys(stores, _SLICING))

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        """Nothing waits for time to pass."""
        return {}

    # answer ----------------------------------------------------------------------------------------------------------

    def answer(self, moment: Moment) -> Made:
        made, snapshots = Made(), moment.decision.tables
        if TABLES in moment.decision.nodes:
            made.state[TABLES] = TablesState(snapshots)
            self._tables.forget(frozenset(snapshots))
        for name, plan in _lookups(moment.flows).items():
            assert plan.feeds is not None
            try:
                absorbed = self._fed(plan, snapshots, moment)
            except Exception as failure:
                made.failed[name] = cause_of(failure)
                continue
            now = watermark_of(moment.after, plan.reads)
            made.clocks[plan.feeds.name] = moment.clock_of(plan.feeds, now, absorbed)
            made.fed += absorbed
            made.state[name] = LookupState(plan.forms)
        return made

    def _fed(self, plan: LookupPlan, snapshots: Mapping[str, Snapshot], moment: Moment) -> Absorbed:
        """Absorbs what a lookup makes of the epoch's rows, as rows of a stream, into what the nodes above keep."""
        assert plan.feeds is not None
        store = plan.stores[0]
        chunks = tuple(chunk.name for chunk in moment.absorbed.chunks if store.id in dict(chunk.ends))
        if not chunks:
            return Absorbed()
        schema = pa.schema([(column.name, arrow_type(column.type)) for column in store.columns])
        work = SelectWork(store.id, chunks, tuple(range(len(store.columns))), schema)
        tasks = min(len(chunks), self._io.slots)
        ddl = ", ".join(f"`{column.name}` {column.type}" for column in store.columns)
        rows = self._io.rows(SelectRows(self._folder, work, tasks), tasks, ddl)
        tables = {name: self._tables.look(name, snapshots[name]) for name in plan.tables}
        return moment.feed(plan.feeds.stream, looked_up(rows, plan, tables))


def looked_up(rows: DataFrame, plan: LookupPlan, tables: Mapping[str, DataFrame]) -> DataFrame:
    """Rows with what tables have for them, by Spark's own joins."""
    from pyspark.sql.functions import expr

    lookup = plan.lookup
    found = rows.alias(lookup.alias)
    for side in lookup.sides:
        table = tables[side.table].select(*(f"`{column.name}`" for column in side.columns)).alias(side.alias)
        found = found.join(table, expr(side.on.sql), _SPARK[side.how])
    return found.selectExpr(*(f"{column.sql} AS `{column.name}`" for column in lookup.columns))


def _lookups(flows: Mapping[str, FlowPlan]) -> dict[str, LookupPlan]:
    return {name: plan for name, plan in flows.items() if isinstance(plan, LookupPlan)}


def _tables(flows: Mapping[str, FlowPlan]) -> tuple[str, ...]:
    """The tables that nodes need, each once."""
    return tuple(dict.fromkeys(name for plan in _lookups(flows).values() for name in plan.tables))


def _snapshots(states: Mapping[str, NodeState]) -> Mapping[str, Snapshot]:
    found = states.get(TABLES)
    return found.snapshots if isinstance(found, TablesState) else {}
