"""Each remedy against overload acts before shedding, in one run of an engine of which all join, move and answer.

What is told of overload is set from epoch to epoch, so no clock decides what acts:

    epochs   0-3     4-5       6-7           8-9            10-11        12-13     14-15
             calm    refresh   answer late   spread joins   move state   intake    shed
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from overload import SCHEMA, Seen, tables
from world import write_epochs

import headrace as hr
from headrace.engine import Manifest, construct
from headrace.engine.sources import intake
from headrace.engine.sources.file_log import Files
from headrace.language import parse_schema
from headrace.model import Entry, EpochDecision, Intake, JoinDecision, KeyedDecision, Observed, Source, Stream
from headrace.planning import Asked, Shedding
from headrace.policies.remedies import Offer, Remedies, Remedy
from headrace.policies.tuning import tuning_of

QUERIES = {
    "often": "SELECT g, COUNT(*) AS n FROM s [WINDOW 6 s SLIDE 2 s] GROUP BY g",
    "seldom": "SELECT g, SUM(x) AS v FROM s [WINDOW 6 s SLIDE 6 s] GROUP BY g",
    "pairs": "SELECT a.seq, b.seq AS other FROM s AS a [RANGE 1 s] JOIN s AS b [RANGE 1 s] ON a.k = b.k",
    "last": "SELECT k, seq, AVG(x) AS v FROM s [PARTITION BY k ROWS 10]",
}
ORDER = (Remedy.REFRESH, Remedy.ANSWER_LATE, Remedy.SPREAD_JOINS, Remedy.MOVE_STATE, Remedy.INTAKE, Remedy.SHED)
FIRST, EACH = 4, 2
EPOCHS = FIRST + EACH * len(ORDER)
ENOUGH_S = 1000.0
# Rows of an epoch that nothing can take, and of a calm one.
FLOOD, ROWS = 1_000_000.0, 200
# From this epoch on most rows have one key, which changes what ways of spreading cost.
HOT = 7


def phase(epoch: int) -> Remedy | None:
    """The remedy that an epoch's overload is meant for."""
    return None if epoch < FIRST or epoch >= EPOCHS else ORDER[(epoch - FIRST) // EACH]


class Script(Seen):
    """Says before each epoch what overload there is; notes what remedies offered by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.natural: dict[int, dict[Remedy, Offer]] = {}

    def asked(self, asked: Asked) -> Asked:
        epoch = len(self.natural)
        self.natural[epoch] = dict(asked.offers)
        wanted = phase(epoch)
        asked = replace(asked, coming={"s": float(ROWS)}, behind={}, answer_s=0.0, offers={}, between_s=0.0)
        if wanted is None:
            return asked
        if wanted is Remedy.ANSWER_LATE:
            return replace(asked, answer_s=ENOUGH_S)
        offers = {} if wanted is Remedy.SHED else {wanted: Offer(ENOUGH_S, "as the test says")}
        return replace(asked, coming={"s": FLOOD}, offers=offers)

    def acting(self, epoch: int) -> tuple[str, ...]:
        decided = self.decisions[epoch].shedding
        assert decided is not None
        return decided.acting


def hot(table: pa.Table) -> pa.Table:
    return table.set_column(1, "k", pa.array([f"k{n % 9 if n % 10 == 0 else 0}" for n in range(table.num_rows)]))


@pytest.fixture(scope="module")
def seen(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Script:
    """One run over all phases. Rounds of keyed state end by themselves only after a very long time."""
    home, script = tmp_path_factory.mktemp("remedies"), Script()
    made = [hot(table) if n >= HOT else table for n, table in enumerate(tables((ROWS,) * EPOCHS))]
    write_epochs(home / "in", made)

    def slow_rounds(given: Any) -> Any:
        tuning = tuning_of(given)
        return replace(tuning, flux=replace(tuning.flux, least_s=1e6))

    rows = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(f"file://{home}/in")
    pipe = hr.Pipeline("remedies").stream("s", rows, time="ts", lateness="0 seconds")
    for name, sql in QUERIES.items():
        pipe.query(name, sql, sink=hr.parquet(f"{home}/{name}"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(construct, "tuning_of", slow_rounds)
        run = pipe.start(
            spark, f"{home}/state", trigger="0 seconds", bins=2, schedule="aggressive", shedding="fit",
            hooks=replace(script.hooks(), asked=script.asked),
        )  # fmt: skip
        run.process_all_available()
        run.stop()
    assert len(script.manifests) == EPOCHS
    return script


def epochs_of(remedy: Remedy) -> range:
    first = FIRST + EACH * ORDER.index(remedy)
    return range(first, first + EACH)


def node(decision: EpochDecision, kind: type) -> Any:
    return next(each for each in decision.nodes.values() if isinstance(each, kind))


def test_each_remedy_acts_alone_and_shedding_last(seen: Script):
    for epoch in range(EPOCHS):
        wanted = phase(epoch)
        assert seen.acting(epoch) == (() if wanted is None else (wanted.value,)), epoch
    assert seen.shed_epochs == list(epochs_of(Remedy.SHED))
    entries = [manifest.ledger["s"] for manifest in seen.manifests.values()]
    assert all(entry.shed == 0 for entry in entries[: epochs_of(Remedy.SHED)[0]])
    assert entries[-1].rows_in == EPOCHS * ROWS == entries[-1].used + entries[-1].shed
    assert entries[-1].shed > 0


def test_no_query_is_answered_more_often_than_asked_while_the_schedule_holds_back(seen: Script):
    first, last = epochs_of(Remedy.REFRESH)
    for epoch, decision in sorted(seen.decisions.items()):
        schedule = decision.schedule
        assert schedule is not None
        acts = epoch in (first + 1, last + 1)
        assert schedule.as_asked == acts
        (group,) = schedule.groups
        assert set(group.periods_us.values()) == ({2_000_000, 6_000_000} if acts else {2_000_000})
    assert any(Remedy.REFRESH in offers for offers in seen.natural.values()), "answering too often was noticed"


def test_answers_have_a_limit_only_while_they_are_to_come_late_and_no_row_pays_for_them(seen: Script):
    first, last = epochs_of(Remedy.ANSWER_LATE)
    limited = [e for e, d in sorted(seen.decisions.items()) if d.schedule is not None and d.schedule.budget_s]
    assert limited == [first + 1, last + 1]
    assert not any(seen.decisions[epoch].shedding.sheds for epoch in (first, last))  # type: ignore[union-attr]


def test_it_is_decided_anew_at_once_how_a_join_is_spread(seen: Script):
    first, last = epochs_of(Remedy.SPREAD_JOINS)
    ways = {epoch: node(decision, JoinDecision) for epoch, decision in seen.decisions.items()}
    assert not ways[first].sampled
    assert ways[first + 1].sampled
    assert ways[last + 1].sampled
    assert ways[first + 1].way.costs_s != ways[first].way.costs_s, "by the rates and keys of late"
    assert any(Remedy.SPREAD_JOINS in offers for offers in seen.natural.values())


def test_a_round_of_moves_ends_at_once(seen: Script):
    first, last = epochs_of(Remedy.MOVE_STATE)
    ended = [e for e, d in sorted(seen.decisions.items()) if node(d, KeyedDecision).ends_round]
    # The second epoch of the two may find moves of the first under way.
    assert ended in ([first + 1], [first + 1, last + 1])
    assert any(Remedy.MOVE_STATE in offers for offers in seen.natural.values())


FILES = Stream("a", parse_schema("ts TIMESTAMP"), "ts", source=Source("parquet", "x"))


class _Log:
    def files(self, batch: int, stream: str) -> Files | None:
        return Files(9, 1_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("acting", "epochs"),
    [
        pytest.param((), 3, id="after three epochs that agree"),
        pytest.param(("intake",), 1, id="against overload after one"),
        pytest.param(("shed",), 3, id="not for another remedy"),
    ],
)
def test_epochs_take_more_as_soon_as_one_shows_that_they_can(
    acting: tuple[str, ...], epochs: int, monkeypatch: pytest.MonkeyPatch
):
    class Now:
        def __init__(self, target: Callable[..., None], args: tuple[Any, ...], **_: Any) -> None:
            self.start = lambda: target(*args)

    monkeypatch.setattr(intake.threading, "Thread", Now)
    planned = list[Intake]()
    control = intake.IntakeControl([FILES], Intake(1, "", 1_000_000), 1.0, _Log())
    control.apply = lambda each: planned.append(each) is None
    state = Shedding(remedies=Remedies(acting))
    for epoch in range(1, epochs + 1):
        assert not planned
        observed = Observed(rows={"a": 9}, seconds=0.01)
        control.committed(Manifest(epoch, epoch, observed=observed, ledger={"a": Entry()}, nodes={"*shedding": state}))
    assert planned
    assert planned[0].bytes > 1_000_000
