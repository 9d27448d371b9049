"""Runs hundreds of random queries in one pipeline, asks the judge about each, and says what became of them.

A round is determined by its seed: rows, epochs, queries, bins, schedule, ways of joins, state files, restarts.
"""

from __future__ import annotations

import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from world import SECOND, START, write_epochs

import headrace as hr
from fuzz.oracle import Judged, Oracle, aligned_ends, covers, difference, results_of
from fuzz.queries import SHAPES, Query, make_query
from fuzz.rows import LATENESS_S, SCHEMA, World, make_world
from headrace.engine import Hooks, Manifest
from headrace.engine.operators.answering import Answering
from headrace.errors import SpecError
from headrace.language import bind_query, parse_schema
from headrace.model import EpochDecision, Stream
from headrace.model.pipeline import JOINS, SCHEDULES
from headrace.planning import plan_query

__all__ = ["Outcome", "Round", "Settings", "play"]

# Queries that Spark says raise over these rows make the engine try all queries one by one: few go along, now and then.
MOST_RAISING = 1
RAISING_ROUNDS = 0.25


@dataclass(frozen=True)
class Settings:
    """What a seed decides besides rows and queries."""

    bins: int
    schedule: str
    join: str
    state_io: tuple[str, ...]  # of each part of the run
    cuts: tuple[int, ...]  # after how many epochs a part ends
    shapes: tuple[str, ...] = tuple(SHAPES)

    @classmethod
    def draw(cls, rng: random.Random, epochs: int) -> Settings:
        restarts = rng.choice((0, 1, 1, 2)) if epochs > 2 else rng.choice((0, 1))
        cuts = (*sorted(rng.sample(range(1, epochs), restarts)), epochs)
        io = tuple(rng.choice(("arrow", "arrow", "arrow", "spark")) for _ in cuts)
        # Windows of hundreds of queries share a few jobs; joins and row windows with expressions take one job each.
        shapes = rng.choice((("window",), ("window",), ("window",), ("join", "window over join"), tuple(SHAPES)))
        # Row windows need state files that tasks open themselves.
        known = tuple(shape for shape in shapes if shape != "rows" or "spark" not in io)
        return cls(rng.choice((1, 2, 3)), rng.choice(SCHEDULES), rng.choice(("auto", "auto", *JOINS)), io, cuts, known)


@dataclass(frozen=True)
class Outcome:
    """What became of one query: `equal`, `refused`, `refused by both`, `failed in both`, `not run`, or `mismatch`."""

    query: Query
    seed: str
    verdict: str
    detail: str = ""
    rows: int = 0
    windows: int = 0


@dataclass
class Round:
    """All outcomes of a seed, and what it cost."""

    seed: str
    settings: Settings
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self) -> Counter[str]:
        return Counter(outcome.verdict for outcome in self.outcomes)

    def named(self, name: str) -> Outcome:
        """What became of one query."""
        return next(outcome for outcome in self.outcomes if outcome.query.name == name)

    def of(self, verdict: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.verdict == verdict]


@contextmanager
def _recorded(ends: dict[str, set[int]]) -> Iterator[None]:
    """Notes which windows the engine answers: for brackets that is the schedule's choice."""
    original = Answering.answer

    def answer(self: Answering, workload: Any, sinks: Any, given: Any) -> Any:
        for name, due in given.due.items():
            ends.setdefault(name, set()).update(due.ends)
        return original(self, workload, sinks, given)

    Answering.answer = answer  # type: ignore[method-assign]
    try:
        yield
    finally:
        Answering.answer = original  # type: ignore[method-assign]


def play(
    spark: Any,
    home: Path,
    seed: str,
    count: int,
    only: Sequence[int] | None = None,
    world: World | None = None,
    settings: Settings | None = None,
    epochs: int | None = None,
    shapes: Sequence[str] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Round:
    """Runs the queries of a seed in one pipeline and compares; `only` some of them, over the same rows."""
    rng = random.Random(seed)
    drawn = rng.choice((2, 3, 4))
    world = world or make_world(rng, epochs or drawn, rng.choice((20, 40, 60)))
    settings = settings or Settings.draw(rng, len(world.epochs["l"]))
    known = shapes or settings.shapes
    queries = [make_query(f"q{i}", f"{seed}:{i}", known) for i in (only if only is not None else range(count))]
    found = Round(seed, settings)
    seeds = {query.name: f"{seed}:{query.name[1:]}" for query in queries}

    def tell(query: Query, verdict: str, detail: str = "", rows: int = 0, windows: int = 0) -> None:
        found.outcomes.append(Outcome(query, seeds[query.name], verdict, detail, rows, windows))

    began = time.monotonic()
    oracle = Oracle(spark, world, home / "judge")
    bound = [query for query in queries if _accepted(query, tell)]
    guess = {q.name: _ends(q, oracle) for q in bound}
    said = dict(zip((q.name for q in bound), oracle.ask([(q, guess[q.name]) for q in bound]), strict=True))
    found.seconds["judge"] = time.monotonic() - began
    raising = [q for q in bound if said[q.name].error is not None and said[q.name].analysed]
    along = MOST_RAISING if only is not None or rng.random() < RAISING_ROUNDS else 0
    running = [q for q in bound if q not in raising[along:]]
    for query in raising[along:]:
        tell(query, "not run", said[query.name].error or "")
    say(f"{len(running)} queries to run, {len(raising)} raise; {settings}")
    began = time.monotonic()
    answered: dict[str, set[int]] = {}
    called: dict[str, dict[int, pa.Table]] = {}
    with _recorded(answered):
        failed, refused = _run(spark, home, world, settings, running, called)
    found.seconds["run"] = time.monotonic() - began
    began = time.monotonic()
    _ask_again(oracle, running, guess, answered, failed, said)
    for query in running:
        ends = sorted(answered.get(query.name, ()))
        table = _table(query, home, called)
        tell(query, *_verdict(query, said[query.name], failed.get(query.name), query.name in refused, table, ends, oracle),
             rows=0 if table is None else table.num_rows, windows=len(ends))  # fmt: skip
    found.seconds["compare"] = time.monotonic() - began
    shutil.rmtree(home, ignore_errors=True)
    return found


def _streams() -> dict[str, Stream]:
    return {name: Stream(name, parse_schema(SCHEMA), "ts") for name in LATENESS_S}


def _accepted(query: Query, tell: Callable[..., None]) -> bool:
    try:
        plan_query(bind_query(query.name, query.sql, _streams()))
    except SpecError as error:
        tell(query, "refused", str(error.problems[0]))
        return False
    return True


def _ends(query: Query, oracle: Oracle) -> list[int]:
    if query.sliding_us is None:
        return []
    times = sorted(time for stream in query.streams for time in oracle.times[stream])
    return aligned_ends(times, *query.sliding_us)


def _run(
    spark: Any,
    home: Path,
    world: World,
    settings: Settings,
    queries: Sequence[Query],
    called: dict[str, dict[int, pa.Table]],
) -> tuple[dict[str, str], set[str]]:
    """Runs all epochs, in as many parts as the settings say; what failed and why, and what was refused at the start."""
    failed: dict[str, str] = {}
    refused: set[str] = set()

    def watch(manifest: Manifest) -> None:
        failed.update({name: state.failed for name, state in manifest.queries.items() if state.failed is not None})

    def begin(decision: EpochDecision) -> None:
        if decision.epoch == 0:
            refused.update({query.name for query in queries} - set(decision.queries))

    # Wall time stands still at the rows' own: no stream becomes idle, whatever this machine does.
    hooks = Hooks(clock_us=lambda epoch: START + epoch * SECOND, on_epoch=watch, on_decision=begin)
    first = 0
    for part, (cut, io) in enumerate(zip(settings.cuts, settings.state_io, strict=True)):
        for name, tables in world.epochs.items():
            write_epochs(home / "in" / name, tables[first:cut], first)
        pipe = hr.Pipeline("fuzz")
        for name, lateness in LATENESS_S.items():
            rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(home / "in" / name))
            pipe.stream(name, rows, time="ts", lateness=f"{lateness} seconds")
        for query in queries:
            # One that failed has lost rows: it is not started again.
            if query.name not in failed:
                pipe.query(query.name, query.sql, sink=_sink(query, home, called))
        spark.conf.set("spark.headrace.state.io", io)
        try:
            last = part == len(settings.cuts) - 1
            run = pipe.start(spark, str(home / "state"), once=True, flush=last, bins=settings.bins, schedule=settings.schedule,
                             join=settings.join, hooks=hooks)  # fmt: skip
            run.await_termination()
        finally:
            spark.conf.unset("spark.headrace.state.io")
        first = cut
    return failed, refused


def _sink(query: Query, home: Path, called: dict[str, dict[int, pa.Table]]) -> hr.SinkChoice:
    if query.sink == "call":
        return hr.call(lambda results, epoch: called.setdefault(query.name, {}).update({epoch: results.toArrow()}))
    options = {"compression": "gzip"} if query.sink == "options" else {}
    return hr.parquet(str(home / "out" / query.name), **options)


def _table(query: Query, home: Path, called: dict[str, dict[int, pa.Table]]) -> pa.Table | None:
    if query.sink == "call":
        tables = list(called.get(query.name, {}).values())
        return pa.concat_tables(tables) if tables else None
    return results_of(home / "out" / query.name)


def _ask_again(
    oracle: Oracle, queries: Sequence[Query], guess: dict[str, list[int]], answered: dict[str, set[int]],
    failed: dict[str, str], said: dict[str, Judged],
) -> None:  # fmt: skip
    """Asks the judge about the windows that were answered, where they are others than those guessed."""
    again = [q for q in queries if q.sliding_us is not None and q.name not in failed and said[q.name].analysed
             and answered.get(q.name, set()) != set(guess[q.name])]  # fmt: skip
    said.update(
        zip((q.name for q in again), oracle.ask([(q, sorted(answered.get(q.name, ()))) for q in again]), strict=True)
    )


def _verdict(
    query: Query,
    said: Judged,
    failure: str | None,
    refused: bool,
    table: pa.Table | None,
    ends: Sequence[int],
    oracle: Oracle,
) -> tuple[str, str]:
    if failure is not None and said.error is not None:
        return ("failed in both" if said.analysed else "refused by both"), f"{failure} | {said.error}"
    if failure is not None:
        return ("refused" if refused else "mismatch"), f"failed: {failure}"
    if said.error is not None:
        return "mismatch", f"Spark {'raises' if said.analysed else 'refuses it'}: {said.error}; Headrace gives results"
    if query.sliding_us is not None:
        times = sorted(time for stream in query.streams for time in oracle.times[stream])
        # Rows of derived streams may begin later than those of their sources.
        derived = query.shape in ("window over join", "window over answers")
        gap = None if derived else covers(ends, times, *query.sliding_us)
        if gap is not None:
            return "mismatch", gap
    assert said.table is not None
    try:
        told = difference(table, said.table)
    except Exception as failure:  # one that cannot be compared must not end the comparison of the others
        return "mismatch", f"cannot be compared: {type(failure).__name__}: {failure}"
    return ("equal", "") if told is None else ("mismatch", told)


def reason(detail: str) -> str:
    """A refusal without what is particular to one query."""
    text = re.sub(r"^\S*: ?query '[^']*': ", "", detail)
    return re.sub(r"'[^']*'|`[^`]*`|\b\d+\b", "_", text)[:140]
