"""The operator of SELECTs without a window: every admitted row is a result, and nothing is kept between epochs.

Spark evaluates the SELECT lists in the pass that absorbs the rows, as it does the expressions of all queries, so a row
on which an expression fails is blamed on its query there. The rows of all these queries are in one chunk per task,
which is gone when the epoch is over. One job writes the results of all queries that go to Parquet or Delta.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine.failures import blamed, cause_of
from headrace.engine.operators.answering import give_to_sinks, writes_parquet
from headrace.engine.operators.giving import give
from headrace.engine.operators.port import Answered, Ask, Checked, Decided, Made, Moment, Taking
from headrace.engine.sinks.choose import FileSink
from headrace.engine.standing import Standing
from headrace.engine.state.state_io import StateIo
from headrace.kernels.absorb import Slicing
from headrace.kernels.arrow_types import arrow_type
from headrace.kernels.select import SELECTED, SelectRows, SelectTask, SelectWork, shared_out
from headrace.model import EpochDecision
from headrace.planning import FlowPlan, SelectPlan, Workload
from headrace.policies import StreamClock, watermark_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["SelectOperator"]

_SLICING = Slicing(slices=1, kind=SELECTED, passing=True)


class SelectOperator:
    """Runs all SELECTs without a window; see `Operator`."""

    def __init__(self, io: StateIo, folder: str, probe: Callable[[str], None]) -> None:
        self._io, self._folder, self._probe = io, folder, probe

    def check(self, checked: Checked) -> None:
        return

    def decide(self, ask: Ask) -> Decided:
        return Decided()

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        # Queries that select the same of the same rows have one store.
        stores = {store.id: store for plan in _selects(part.flows).values() for store in plan.stores}
        return Taking(stores=tuple(stores.values()), slicings=dict.fromkeys(stores, _SLICING))

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        """Nothing waits for time to pass."""
        return {}

    def answer(self, moment: Moment) -> Made:
        made, direct = Made(), dict[str, SelectWork]()
        for name, plan in _selects(moment.flows).items():
            now = watermark_of(moment.after, plan.reads)
            if now is not None:
                made.answered[name] = Answered(now)
            work = self._work(plan, moment)
            if not work.chunks:
                continue
            if work.staging is not None:
                direct[name] = work
                continue
            try:
                results, of = self._results(plan, work), (moment.decision.epoch, moment.replay)
                made.rows[name] = give(plan.query, moment.sinks[name], results, *of, made.counts)
            except Exception as failure:
                made.failed[name] = cause_of(failure)
        if direct:
            self._deliver(direct, moment, made)
        return made

    def _work(self, plan: SelectPlan, moment: Moment) -> SelectWork:
        outputs, sink = plan.query.finish.outputs, moment.sinks[plan.name]
        staging = sink.staging if isinstance(sink, FileSink) and writes_parquet(plan.query, sink, self._io) else None
        return SelectWork(
            plan.store_id,
            tuple(chunk.name for chunk in moment.absorbed.chunks if plan.store_id in dict(chunk.ends)),
            tuple(plan.position(output) for output in outputs),
            pa.schema([(output.name, arrow_type(output.type)) for output in outputs]),
            staging,
        )

    def _deliver(self, works: Mapping[str, SelectWork], moment: Moment, made: Made) -> None:
        """All SELECTs that tasks can write, in one job."""
        names = tuple(works)
        rows = (moment.absorbed.rows.get(work.store, 0) for work in works.values())
        shares = shared_out((work.chunks for work in works.values()), rows, self._io.slots)
        task = SelectTask(self._folder, tuple(works.values()), shares)
        deliveries = blamed(lambda: self._io.run(task, len(shares)))
        give_to_sinks(deliveries, names, moment.sinks, (moment.decision.epoch, moment.replay), made, self._probe)

    def _results(self, plan: SelectPlan, work: SelectWork) -> DataFrame:
        tasks = min(len(work.chunks), self._io.slots)
        ddl = ", ".join(f"`{output.name}` {output.type}" for output in plan.query.finish.outputs)
        return self._io.rows(SelectRows(self._folder, work, tasks), tasks, ddl)


def _selects(flows: Mapping[str, FlowPlan]) -> dict[str, SelectPlan]:
    return {name: plan for name, plan in flows.items() if isinstance(plan, SelectPlan)}
