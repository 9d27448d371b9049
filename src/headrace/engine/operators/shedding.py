"""Shedding behind the port: it measures what rows cost, judges what waits, and decides what edges keep.

It has no nodes of its own. What it decides concerns the edges into those of other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from headrace.engine.operators.port import Ask, Checked, Decided, Made, Moment, Taking
from headrace.engine.sources.coming import Batch
from headrace.engine.standing import Standing
from headrace.engine.state.retention import EVER
from headrace.engine.watch.hooks import Hooks
from headrace.model import SHEDDING, EngineSettings, EpochDecision, SheddingDecision
from headrace.planning import (
    Asked,
    JoinPlan,
    Part,
    Shedding,
    Workload,
    counted_edges,
    decide_shedding,
    edges_of,
    even_spread_offers,
    groups_of,
    parts_of,
    protected_edges,
    unasked_share,
)
from headrace.policies import StreamClock, watermark_of
from headrace.policies.remedies import Offer, Remedy
from headrace.policies.shedding import RowSample, learn_row_costs

__all__ = ["SheddingOperator"]

# How much of an average the newest epoch is.
NEWEST = 0.3


class SheddingOperator:
    """Decides by edge which fraction of rows is kept; see `Operator`.

    `coming` tells by stream what a batch takes, `behind` the rows that sources had beyond the last batch, `between` the
    seconds that Spark took for the last batch besides its epoch.
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
        self.between: Callable[[], float | None] = lambda: None
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
            _newest(state.between_s, self.between()),
        )
        asked = self._hooks.asked(_with_refreshes(asked, ask))
        queries = {name: plan.query for name, plan in standing.workload.queries.items() if name in standing.live}
        made, self._judged = decide_shedding(state, self._parts_of(standing), queries, self._settings, asked)
        self._tell(made)
        if not made.sheds:
            return Decided({SHEDDING: made})
        by_key = {e for part in self._parts_of(standing) if part.by_key for mine in part.edges.values() for e in mine}
        keyed = {edge: part for edge, part in made.keep.items() if edge in by_key}
        keep = {edge: part for edge, part in made.keep.items() if edge not in by_key}
        return Decided({SHEDDING: made}, keep, made.buckets, keyed)

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

    # answer ----------------------------------------------------------------------------------------------------------

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        if self._settings.shedding == "off":
            return Taking()
        protected = protected_edges(part)
        panes = {edge: part.kept[edge.partition(">")[2]].pane_us for edge in protected}
        return Taking(counted=panes | counted_edges(part), protected=protected)

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> dict[str, int]:
        return {}

    def answer(self, moment: Moment) -> Made:
        before = self._judged or moment.standing.manifest.shedding
        standing, panes = moment.standing, moment.absorbed.panes
        told = _told(standing) if self._settings.shedding != "off" else ()
        edges = {name: edges_of(standing.workload, name) for name in told}
        state = before.with_panes(panes).reaching(_reach(moment, edges)).with_queries(edges, panes)
        state = state.with_buckets(moment.absorbed.buckets) if moment.decision.flush is None else state
        if moment.decision.flush is None:
            state = self._learned(state, moment)
        return Made(state={SHEDDING: state})

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
            {
                name: round(rows[name] * admission.most_of(edge for edge in edges if edge.partition(">")[0] == name))
                for name, admission in moment.decision.admissions.items()
                if name in rows
            },
        )
        sample = self._hooks.measured(sample)
        self._rate = {name: count / self._since_s for name, count in rows.items()} if self._since_s > 0 else {}
        per_byte = dict(state.rows_per_byte)
        for name, batch in self._batches.items():
            if batch.bytes and rows.get(name):
                now = rows[name] / batch.bytes
                per_byte[name] = per_byte[name] + NEWEST * (now - per_byte[name]) if name in per_byte else now
        return replace(
            state,
            costs=learn_row_costs(state.costs, sample),
            rows_per_byte=per_byte,
            other_s=round(sample.seconds, 4),
            over=round(_newest(state.over, state.costs.over(sample)), 4),
        )


def _with_refreshes(asked: Asked, ask: Ask) -> Asked:
    """The same with what it would save to answer no more often than asked."""
    standing, last = ask.standing, ask.before.schedule if ask.before else None
    if not asked.answer_s or last is None:
        return asked
    manifest = standing.manifest
    groups = groups_of(standing.workload, standing.live, manifest.schedule, manifest.coverage)
    gain_s = unasked_share(groups, last) * asked.answer_s
    if gain_s <= 0:
        return asked
    offer = Offer(gain_s, f"answering more often than asked takes {gain_s:.2f} s of an epoch")
    return replace(asked, offers={**asked.offers, Remedy.REFRESH: offer})


def _told(standing: Standing) -> tuple[str, ...]:
    """The queries that run whose results tell what was shed."""
    workload = standing.workload
    joins = {n for n, plan in workload.flows.items() if isinstance(plan, JoinPlan) and plan.shed_by_key}
    return tuple(name for name in standing.live if name in workload.plans or name in joins)


def _reach(moment: Moment, edges: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """By edge that is counted the time before which no window reaches."""
    found: dict[str, int] = {}
    standing = moment.standing
    for name, mine in edges.items():
        plan = standing.workload.queries[name]
        if isinstance(plan, JoinPlan):
            now = watermark_of(moment.after, plan.reads)
            # Accounts are by panes as long as the range.
            reach = EVER[0] if now is None else now - 2 * plan.span_us
        else:
            until = standing.manifest.queries[name].answered_us
            reach = EVER[0] if until is None else until - standing.workload.plans[name].aggregate.window.size_us
        for edge in mine:
            found[edge] = min(found.get(edge, reach), reach)
    return found


def _newest(average_s: float, now_s: float | None) -> float:
    """An average with one more value, if there is one."""
    if now_s is None:
        return average_s
    return average_s + NEWEST * (now_s - average_s) if average_s else now_s
