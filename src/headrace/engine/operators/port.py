"""The port behind which all operators run: what an epoch tells them, and what they make of it.

An operator serves all nodes of its kind (plain SELECTs, lookups, aggregates, joins, row windows and functions). The
epoch knows this port and no kind; it calls

    check     when queries come: refuses what cannot run, before anything depends on it
    decide    1 admit: what the operator will do, with the reason; logged before it acts, read again on replay
    takes     2 absorb: what the one pass over the rows has to keep for it, and how that is cut
    ends      3 advance: how far a flush has to bring the time of a stream
    answer    4 answer: reads state and rows, delivers results, makes state, says what may be forgotten; once for each
              round of nodes, those below others first
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from headrace.engine.sinks.choose import Sink
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import NodeState, QueryState
from headrace.kernels.absorb import Absorbed, Slicing
from headrace.kernels.chunks import Chunk
from headrace.model import Counts, EpochDecision, Flush, JoinMeasures, KeyedMeasures, NodeDecision, Stream, edge_into
from headrace.planning import AnswerPlan, Derived, FlowPlan, Kept, RowStore, Workload
from headrace.policies import StreamClock
from headrace.policies.remedies import Remedy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Answered", "Ask", "Checked", "Decided", "Made", "Moment", "Operator", "StepFunctions", "Taking"]

# Functions that a caller has given for queries, by query.
StepFunctions = Mapping[str, Callable[..., object]]


@dataclass(frozen=True)
class Ask:
    """What an operator decides by: where the engine stands, which epoch comes, and what was decided for the last.

    `wall_us` is the wall time of the epoch.
    """

    standing: Standing
    epoch: int
    flush: Flush | None
    before: EpochDecision | None
    wall_us: int = 0

    def acts(self, remedy: Remedy) -> bool:
        """Whether a remedy against overload was chosen before the last epoch: it acts from this one on."""
        return self.flush is None and self.standing.manifest.shedding.remedies.acts(remedy)


@dataclass(frozen=True)
class Decided:
    """By node what an operator does in the coming epoch, and by edge the fraction of rows that it keeps, if not all; of
    edges that protect rare keys, by bucket; in `keyed`, of the keys of a join."""

    nodes: Mapping[str, NodeDecision] = field(default_factory=dict)
    keep: Mapping[str, float] = field(default_factory=dict)
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    keyed: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: Decided) -> Decided:
        buckets, keyed = {**self.buckets, **other.buckets}, {**self.keyed, **other.keyed}
        return Decided({**self.nodes, **other.nodes}, {**self.keep, **other.keep}, buckets, keyed)


@dataclass(frozen=True)
class Taking:
    """What an operator wants of an epoch's rows: panes, rows, by store how rows are cut into slices, and the edges
    whose rows are counted, by panes of such a length. `protected` has by edge the number of the group
    key whose rare values are kept."""

    kept: tuple[Kept, ...] = ()
    stores: tuple[RowStore, ...] = ()
    slicings: Mapping[str, Slicing] = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    protected: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Taking) -> Taking:
        slicings = {**self.slicings, **other.slicings}
        counted, protected = {**self.counted, **other.counted}, {**self.protected, **other.protected}
        return Taking(self.kept + other.kept, self.stores + other.stores, slicings, counted, protected)

    def edges_of(self, stream: str) -> tuple[str, ...]:
        """The edges along which rows of a stream are taken."""
        panes = (each.synopsis.id for each in self.kept if any(f.stream == stream for f in each.synopsis.feeds))
        rows = (each.id for each in self.stores if any(f.stream == stream for f in each.feeds))
        return tuple(edge_into(id_, stream) for id_ in (*panes, *rows))


def _no_feed(stream: Stream, rows: DataFrame) -> Absorbed:
    raise NotImplementedError(f"nobody takes the rows of '{stream.name}' here")


@dataclass(frozen=True)
class Moment:
    """A round of an epoch as an operator sees it: time before and after its rows, all state, its nodes.

    `nodes` are those of this round that live queries need; what they read was made in rounds before. `chunks`
    were there before the epoch, `absorbed.chunks` came with its rows and with those of derived streams. `state` is what
    operators left in the last manifest; `ending` are queries that this epoch is the last of. `feed` absorbs rows that
    an operator makes, as rows of a derived stream. `other_s` is what the epoch takes besides answering.
    """

    decision: EpochDecision
    replay: bool
    standing: Standing
    nodes: frozenset[str]
    absorbed: Absorbed
    after: Mapping[str, StreamClock]
    ending: frozenset[str] = frozenset()
    feed: Callable[[Stream, DataFrame], Absorbed] = _no_feed
    other_s: float = 0.0

    @property
    def flows(self) -> dict[str, FlowPlan]:
        """The nodes of this round that make results of rows as they come."""
        return {name: plan for name, plan in self.standing.workload.flows.items() if name in self.nodes}

    @property
    def answers(self) -> dict[str, AnswerPlan]:
        """The nodes of this round that panes answer."""
        return {name: plan for name, plan in self.standing.workload.plans.items() if name in self.nodes}

    @property
    def sinks(self) -> Mapping[str, Sink]:
        return self.standing.sinks

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        return self.standing.manifest.chunks

    @property
    def state(self) -> Mapping[str, NodeState]:
        return self.standing.manifest.nodes

    @property
    def before(self) -> Mapping[str, StreamClock]:
        return self.standing.clocks

    def is_last(self, node: str) -> bool:
        """Whether nothing of a node's results may be put off to another epoch."""
        over = self.standing.workload.queries_over(node)
        return self.decision.flush is not None or any(query in self.ending for query in over)

    def clock_of(self, derived: Derived, now_us: int | None, absorbed: Absorbed) -> StreamClock:
        """The time of a derived stream after results were absorbed of it; none to come is older than `now_us`."""
        before, seen = self.before[derived.name], absorbed.counts.get(derived.name)
        marks = [mark for mark in (before.watermark_us, now_us) if mark is not None]
        firsts = [time for time in (before.first_us, seen.first_us if seen else None) if time is not None]
        lasts = [time for time in (before.last_us, seen.last_us if seen else None) if time is not None]
        return replace(
            before,
            first_us=min(firsts, default=None),
            last_us=max(lasts, default=None),
            watermark_us=max(marks, default=None),
        )


@dataclass(frozen=True)
class Answered:
    """How far a query's answers have come in event time, how far that is behind, and windows answered on the way.

    `owes` says that something due has been put off to another epoch.
    """

    until_us: int | None
    behind_us: int = 0
    windows: int = 0
    owes: bool = False

    def added_to(self, state: QueryState, rows: int) -> QueryState:
        """The state of a query after an epoch that gave it these answers, of so many rows."""
        gap = state.gap_us
        if self.windows and state.answered_us is not None and self.until_us is not None:
            mean = (self.until_us - state.answered_us) / self.windows
            gap = mean if gap is None else gap + (mean - gap) * min(1.0, 0.1 * self.windows)
        return replace(
            state,
            answered_us=self.until_us,
            answers=state.answers + self.windows,
            rows=state.rows + rows,
            gap_us=gap,
            waiting_us=self.behind_us,
        )


@dataclass
class Made:
    """What operators made of an epoch, by node, and of what they keep.

    `expired` gives per synopsis and store the time before which nothing is needed any more: chunks that hold nothing
    newer go. `clocks` are those of streams they make, `chunks` what was absorbed of these, or state of their own.
    `state` goes into the manifest as it is, and chunks that are kept apart stay as long as it names them. `unfinished`
    says that a flush needs another epoch. `counts` are those of results that Spark has given to sinks, of queries that
    expect something of them.
    """

    rows: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    answered: dict[str, Answered] = field(default_factory=dict)
    state: dict[str, NodeState] = field(default_factory=dict)
    expired: dict[str, int] = field(default_factory=dict)
    clocks: dict[str, StreamClock] = field(default_factory=dict)
    fed: Absorbed = field(default_factory=Absorbed)
    chunks: tuple[Chunk, ...] = ()
    observed: dict[str, JoinMeasures | KeyedMeasures] = field(default_factory=dict)
    unfinished: bool = False
    counts: dict[str, Counts] = field(default_factory=dict)

    def add(self, other: Made) -> None:
        """Takes what another operator made."""
        self.rows |= other.rows
        self.failed |= other.failed
        self.answered |= other.answered
        self.state |= other.state
        # Nodes of several rounds may need the same panes.
        self.expired |= {id_: min(time, self.expired.get(id_, time)) for id_, time in other.expired.items()}
        self.clocks |= other.clocks
        self.fed += other.fed
        self.chunks += other.chunks
        self.observed |= other.observed
        self.unfinished |= other.unfinished
        self.counts |= other.counts


@dataclass(frozen=True)
class Checked:
    """Queries that are about to come: their plans, what is remembered of them, and functions given for them."""

    flows: Mapping[str, FlowPlan]
    state: Mapping[str, NodeState]
    functions: StepFunctions = field(default_factory=dict)


class Operator(Protocol):
    """Runs all nodes of one kind."""

    def check(self, checked: Checked) -> None:
        """SpecError or StateError if one of the queries cannot run."""

    def decide(self, ask: Ask) -> Decided:
        """What is decided for the coming epoch, with reasons."""

    def takes(self, part: Workload, decision: EpochDecision) -> Taking:
        """What the queries of a part of the workload need of the epoch's rows."""

    def ends(self, standing: Standing, decision: EpochDecision, clocks: Mapping[str, StreamClock]) -> Mapping[str, int]:
        """By stream the time that a flush has to bring it to; streams without one may stay where they are."""

    def answer(self, moment: Moment) -> Made:
        """Makes results of the epoch's rows, puts them where the sinks find them, or feeds them to nodes above."""
