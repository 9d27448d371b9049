"""What an epoch has done so far, and what that makes of its queries, its rows, and what operators remember."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from headrace.engine.expecting import QUERY, STREAM, results_counted, rows_counted
from headrace.engine.operators.port import Answered, Made
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import NodeState, QueryState
from headrace.kernels.absorb import Absorbed
from headrace.model import Entry, EpochDecision, Shed
from headrace.planning import Workload, streams_read
from headrace.policies import StreamClock, ran_ahead
from headrace.policies.expectations import Verdict, judge_epoch

__all__ = ["Progress"]


@dataclass
class Progress:
    """An epoch under way: its steps fill this in, its commit writes it down."""

    standing: Standing
    decision: EpochDecision
    replay: bool
    began_s: float
    jobs: int  # that Spark had started before it
    absorbed: Absorbed = field(default_factory=Absorbed)
    clocks: dict[str, StreamClock] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    made: Made = field(default_factory=Made)
    steps_s: dict[str, float] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)  # on what is expected
    disappointing: dict[str, str] = field(default_factory=dict)  # queries that fail by their results, and why

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    @property
    def alive(self) -> tuple[str, ...]:
        """The queries that run and have not failed in this epoch."""
        return tuple(name for name in self.standing.live if name not in self.failed)

    @property
    def ending(self) -> frozenset[str]:
        """The queries whose lifetime is over with this epoch."""
        return frozenset(name for name in self.alive if self.standing.lifetime(name, self.clocks)[1])

    @contextmanager
    def timed(self, step: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.steps_s[step] = time.monotonic() - began

    def take(self, made: Made) -> None:
        """Adds what an operator has made; a node that failed fails all queries above it."""
        self.made.add(made)
        over = self.standing.workload.queries_over
        self.failed |= {query: cause for node, cause in made.failed.items() for query in over(node)}
        # Counts are those of declared streams, whose ledger they are.
        self.absorbed = replace(self.absorbed + made.fed, counts=self.absorbed.counts)
        self.clocks = {**self.clocks, **made.clocks}

    def judge_rows(self) -> None:
        """Judges what streams are expected to bring; queries over one that fails them are not answered."""
        verdict = judge_epoch(
            self.decision.epoch,
            {f"{STREAM}{s.name}": s.expect for s in self.standing.streams},
            rows_counted(self.standing, self.decision, self.absorbed),
            self.standing.manifest.expected,
        )
        self.verdict += verdict
        self.failed |= {
            name: f"stream '{stream}' is not as {cause}"
            for stream, cause in ((owner.removeprefix(STREAM), cause) for owner, cause in verdict.failed.items())
            for name in self.alive
            if stream in streams_read(self.standing.workload.queries[name])
        }

    def judge_results(self) -> None:
        """Judges what queries were expected to answer; their results are with their sinks."""
        plans = {f"{QUERY}{name}": self.standing.workload.queries[name].query for name in self.alive}
        counts = results_counted(self.standing, self.decision, self.alive, self.absorbed, self.made)
        expected = {owner: query.expect for owner, query in plans.items()}
        verdict = judge_epoch(self.decision.epoch, expected, counts, self.standing.manifest.expected)
        self.verdict += verdict
        self.disappointing = {plans[owner].name: cause for owner, cause in verdict.failed.items()}

    def ran_ahead(self) -> list[str]:
        """What a flush means for rows to come, of streams whose watermarks it has moved far beyond their rows."""
        if self.decision.flush is None:
            return []
        before = self.standing.clocks
        told = (ran_ahead(before[stream.name], self.clocks[stream.name], stream) for stream in self.standing.streams)
        return [text for text in told if text is not None]

    def outcomes(self) -> dict[str, QueryState]:
        """Where each query stands after the epoch."""
        return {name: self._outcome(name, state) for name, state in self.standing.manifest.queries.items()}

    def _outcome(self, name: str, state: QueryState) -> QueryState:
        if name in self.failed:
            return state.failed_by(self.failed[name])
        if not state.runs or name not in self.standing.workload.queries:
            return state
        ends_us, over = self.standing.lifetime(name, self.clocks)
        answered = self.made.answered.get(name, Answered(state.answered_us))
        state = answered.added_to(state, self.made.rows.get(name, 0))
        state = replace(state, ends_us=ends_us, ended=over and not answered.owes)
        return state.failed_by(self.disappointing[name]) if name in self.disappointing else state

    def remembered(self, workload: Workload, queries: Mapping[str, QueryState]) -> dict[str, NodeState]:
        """What operators still remember: of queries that run, and what outlives queries or their failure."""
        failed = {name for name, state in queries.items() if state.failed is not None}
        states = {**self.standing.manifest.nodes, **self.made.state}
        return {
            node: state
            for node, state in states.items()
            if node in workload.nodes or state.outlives_queries or (node in failed and state.outlives_failure)
        }

    def ledger(self) -> dict[str, Entry]:
        """By stream the account of all rows so far; a row that any edge left out is shed, though others may use it."""
        counts = {name: count.entry for name, count in self.absorbed.counts.items()}
        before = self.standing.manifest.ledger
        return {s.name: before.get(s.name, Entry()) + counts.get(s.name, Entry()) for s in self.standing.streams}

    def edges(self, workload: Workload) -> dict[str, Shed]:
        """The accounts of edges that have shed, as long as there are these edges."""
        before, now = self.standing.manifest.edges, self.absorbed.shed
        there = {*workload.kept, *(store.id for store in workload.stores)}
        return {
            edge: before.get(edge, Shed()) + now.get(edge, Shed())
            for edge in sorted(before.keys() | now.keys())
            if edge.partition(">")[2] in there
        }
