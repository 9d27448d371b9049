"""Shedding behind the port: it measures what rows cost, judges what waits, and decides what edges keep.

It has no nodes of its own. What it decides concerns the edges into those of other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.engine.operators.port import Ask, Checked, Decided, Moment, Stepped, Taking
from headrace.engine.sources.coming import Batch
from headrace.engine.standing import Standing
from headrace.engine.state.retention import EVER
from headrace.engine.watch.hooks import Hooks
from headrace.model import SHEDDING, EngineSettings, EpochDecision, SheddingDecision
from headrace.planning import (
    Asked,
    Part,
    Shedding,
    Workload,
    decide_shedding,
    edges_of,
    even_spread_offers,
    parts_of,
    protected_edges,
)
from headrace.policies import StreamClock
from headrace.policies.shedding import RowSample, learn_row_costs

__all__ = ["SheddingOperator"]

# How much of an average the newest epoch is.
NEWEST = 0.3


class SheddingOperator:
    """Decides by edge which fraction of rows is kept; see `Operator`.

    `coming` tells by stream what a batch takes, `behind` the rows that sources had beyond the last batch.
    """

    def __init__(
        self,
        settings: EngineSettings,
        trigger_s: float | None,
        coming: Callable[[int], Mapping[str, Batch]],
        hooks: Hooks,
    ) -> None:
        self._settings, self._trigger_s, self._coming, self._hooks = settings, trigger_s, coming, hooks
        self.behind: Callable[[], Mapping[str, int]] = dict
        self._steady_us: int | None = None  # when the epoch before was admitted
        self._rate: dict[str, float] = {}  # rows per second that streams have brought of late
        self._since_s = 0.0
        self._judged: Shedding | None = None
        self._batches: Mapping[str, Batch] = {}
        self._noted = False
        self._parts: tuple[Workload, tuple[str, ...], tuple[Part, ...]] | None = None

    def check(self, checked: Checked) -> None:
        return

    # decide ----------------------------------------------------------------------------------------------------------

    def decide(self, ask: Ask) -> Decided:
        if ask.flush is not None or self._trigger_s is None:
            self._judged, self._batches = None, {}
            return Decided()
        standing, state = ask.standing, ask.standing.manifest.shedding
        now_us = self._hooks.reading(ask.epoch).steady_us
        started, self._since_s = self._steady_us is None, max(0.0, (now_us - (self._steady_us or now_us)) / 1e6)
        self._steady_us = now_us
        self._batches = self._coming(standing.manifest.batch + 1)
        coming = {s.name: self._rows(s.name, state) for s in standing.streams}
        behind = {s: max(0.0, rows - coming.get(s, 0.0)) for s, rows in self.behind().items()}
        observed = standing.manifest.observed
        asked = Asked(
            coming,
            behind,
            self._since_s,
            started,
            self._trigger_s,
            max(0.0, observed.seconds - state.other_s) if state.other_s else 0.0,
            even_spread_offers(observed.flows),
        )
        queries = {name: plan.query for name, plan in standing.workload.queries.items() if name in standing.live}
        made, self._judged = decide_shedding(state, self._parts_of(standing), queries, self._settings, asked)
        self._tell(made)
        return Decided({SHEDDING: made}, made.keep, made.buckets) if made.sheds else Decided({SHEDDING: made})

    def _rows(self, stream: str, state: Shedding) -> float:
        """Rows that the coming epoch takes: as the source says, or as many as the stream has brought in such a time."""
        batch = self._batches.get(stream)
        if batch is not None and batch.rows is not None:
            return float(batch.rows)
        if batch is not None and batch.bytes is not None and stream in state.rows_per_byte:
            return batch.bytes * state.rows_per_byte[stream]
        return self._rate.get(stream, 0.0) * self._since_s

    def _parts_of(self, standing: Standing) -> tuple[Part, ...]:
        known = self._parts
        if known is None or known[0] is not standing.workload or known[1] != standing.live:
            names = [stream.name for stream in standing.streams]
            found = parts_of(standing.workload, standing.live, names)
            self._parts = known = (standing.workload, standing.live, found)
        return known[2]

    def _tell(self, made: SheddingDecision) -> None:
        """Says once per overload what is shed, or what would be."""
        acts = bool(made.keep)
        if acts and not self._noted:
            what = f"rows are shed: {made.reason}" if made.sheds else f"the lag grows: {made.reason}"
            self._hooks.on_note(what)
        self._noted = acts or (self._noted and self._judged is not None and self._judged.overload.overloaded)

    # step ------------------------------------------------------------------------------------------------------------

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        if self._settings.shedding == "off":
            return Taking()
        protected = protected_edges(part)
        answered = [name for name in part.queries if name in part.plans]
        counted = frozenset(edge for name in answered for edge in edges_of(part, name))
        return Taking(counted=counted | protected.keys(), protected=protected)

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        return {}

    def step(self, moment: Moment) -> Stepped:
        before = self._judged or moment.standing.manifest.shedding
        standing, panes = moment.standing, moment.absorbed.panes
        counts = self._settings.shedding != "off"
        edges = {n: edges_of(standing.workload, n) for n in standing.workload.plans if n in standing.live and counts}
        state = before.with_panes(panes).reaching(_reach(standing, edges)).with_queries(edges, panes)
        state = state.with_buckets(moment.absorbed.buckets) if moment.decision.flush is None else state
        if moment.decision.flush is None:
            state = self._learned(state, moment)
        return Stepped(state={SHEDDING: state})

    def _learned(self, state: Shedding, moment: Moment) -> Shedding:
        absorbed = moment.absorbed
        rows = {name: count.entry.rows_in for name, count in absorbed.counts.items()}
        streams = {stream.name for stream in moment.standing.streams}
        edges = {e: w for e, w in absorbed.worked.items() if e not in streams and e.partition(">")[0] in streams}
        shed = {edge: account.shed for edge, account in absorbed.shed.items()}
        sample = RowSample(
            {name: count for name, count in rows.items() if name in streams},
            {name: work.seconds for name, work in absorbed.worked.items() if name in streams},
            {edge: work.rows + shed.get(edge, 0) for edge, work in edges.items()},
            {edge: work.rows for edge, work in edges.items()},
            {edge: work.seconds for edge, work in edges.items()},
            moment.other_s,
        )
        sample = self._hooks.measured(sample)
        self._rate = {name: count / self._since_s for name, count in rows.items()} if self._since_s > 0 else {}
        per_byte = dict(state.rows_per_byte)
        for name, batch in self._batches.items():
            if batch.bytes and rows.get(name):
                now = rows[name] / batch.bytes
                per_byte[name] = per_byte[name] + NEWEST * (now - per_byte[name]) if name in per_byte else now
        return replace(
            state, costs=learn_row_costs(state.costs, sample), rows_per_byte=per_byte, other_s=round(sample.seconds, 4)
        )


def _reach(standing: Standing, edges: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """By edge that is counted the time before which no window reaches."""
    found: dict[str, int] = {}
    for name, mine in edges.items():
        until = standing.manifest.queries[name].answered_us
        reach = EVER[0] if until is None else until - standing.workload.plans[name].aggregate.window.size_us
        for edge in mine:
            found[edge] = min(found.get(edge, reach), reach)
    return found
