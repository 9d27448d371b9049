"""Any moves, turns on disk, shares and losses at any epoch: results of every key equal DuckDB's, each once.

The operator and the tasks are the real ones; only the processes are dictionaries here, one per bin, so that a test can
have hundreds of epochs, and can lose a process, an attempt or all of them when it likes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from keyed_chaos import Chaos
from world import assert_same

from headrace.engine.operators import keyed
from headrace.engine.operators.port import Ask, Moment
from headrace.engine.sinks.choose import FileSink
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.state_io import Stays
from headrace.engine.state.storage import open_storage
from headrace.kernels import keyed as keyed_task
from headrace.kernels.absorb import Absorbed
from headrace.kernels.cargo import CARGO, OnNumbers, TakeApart, wanted_by
from headrace.kernels.carried import NotCarried, Want, box
from headrace.kernels.chunks import APART, write_chunk
from headrace.kernels.keyed import KeyedTask, KeyedWork, Left, MiniWork, RowsKernel
from headrace.kernels.row_windows import RowsSpec
from headrace.kernels.values import PlannedAggregate
from headrace.language import bind_query, parse_schema
from headrace.model import EpochDecision, Flush, KeyedDecision, KeyedState, Move, Residence, SinkSpec, Stream
from headrace.planning import Workload, plan_rows
from headrace.policies import FluxSettings, StreamClock, advance_clock

STREAM = Stream("r", parse_schema("ts TIMESTAMP, k INT, v INT"), "ts", lateness_us=50)
SQL = "SELECT k, ts, v, SUM(v) AS a, MIN(v) AS b, COUNT(DISTINCT v) AS c FROM r [PARTITION BY k ROWS 4]"
PLAN = plan_rows(bind_query("q", SQL, {"r": STREAM}))
STORE = PLAN.stores[0]
WORKLOAD = Workload({}, {}, {}, flows={"q": PLAN})
DUCK = """SELECT k, make_timestamptz(ts), v, sum(v) OVER w, min(v) OVER w, count(DISTINCT v) OVER w FROM rows
          WINDOW w AS (PARTITION BY k ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW)"""


class Processes:
    """A process per bin, each with memory of its own; an attempt may be lost after it has done its work.

    Where files are `carried`, a process opens none: it gets what its order wants in a box, and is run again with what
    it lacked.
    """

    def __init__(self, slots: int, rng: random.Random, carried: bool = False) -> None:
        self.slots, self.rng, self.carried = slots, rng, carried
        self.memories, self.lost, self.again = dict[int, dict[Any, Any]](), 0, 0

    def delivers_to(self, sink: Any) -> bool:
        return True

    def run(self, order: KeyedTask, bins: int, stays: Stays) -> list[Any]:
        assert stays is Stays.PROCESS
        reports: list[Any] = []
        for bin_ in range(bins):
            for attempt in range(2):
                if self.rng.random() < 0.1:
                    self.memories.pop(bin_, None)
                    self.lost += 1
                keyed_task._held.clear()
                keyed_task._held.update(self.memories.get(bin_, {}))
                made = self._carried(order, bin_) if self.carried else list(order([bin_]))
                self.memories[bin_] = dict(keyed_task._held)
                if attempt or self.rng.random() > 0.1:
                    reports += made
                    break
        return reports

    def _carried(self, order: KeyedTask, bin_: int, *more: Want) -> list[Any]:
        folder = Path(order.folder)
        wanted = wanted_by([[*order.wants(bin_), *more]])
        task = pa.record_batch([[0], [None], [None], [None]], schema=CARGO)
        files = [pa.record_batch([[0], [n], [None], [(folder / n).read_bytes()]], schema=CARGO) for n in wanted]
        apart = TakeApart(order.folder, wanted)(iter(files))
        with box() as held:
            try:
                made = list(OnNumbers(order.folder, order, [bin_], {bin_: more})(iter([task, *apart])))
            except NotCarried as lack:
                self.again += 1
                lacking = lack.wants
                assert not held.made
            else:
                for each in held.made:
                    Path(each.folder).mkdir(exist_ok=True)
                    (Path(each.folder) / each.name).write_bytes(each.data)
                return made
        assert not set(lacking) <= set(more), "it was brought what it lacked"
        return self._carried(order, bin_, *more, *lacking)


class World:
    """Epochs one after the other, as the engine makes them, over rows the test thinks up."""

    def __init__(self, home: Path, processes: Processes, settings: FluxSettings) -> None:
        self.home, self.processes, self.settings = home, processes, settings
        self.sink = FileSink(SinkSpec("parquet"), open_storage(str(home / "out")))
        self.checkpoint = Checkpoint(open_storage(str(home / "state")))
        (home / "state" / "state").mkdir(parents=True)
        (home / "out").mkdir()
        self.epoch, self.clock, self.state = 0, StreamClock(), dict[str, Any]()
        self.admitted: list[tuple[int, int | None, int | None]] = []
        self.chunks: dict[str, Any] = {}
        self.observed: list[Any] = []
        self.decided: list[KeyedDecision] = []
        self.start()

    def start(self) -> None:
        """A new engine: nothing but files and the manifest's state is left."""
        io: Any = self.processes
        self.operator = keyed.KeyedOperator(None, self.checkpoint, io, self.settings)  # type: ignore[arg-type]

    def run(self, rows: list[tuple[int, int | None, int | None]], flush: bool = False, last: bool = False) -> None:
        manifest = Manifest(self.epoch - 1, self.epoch - 1, {"r": self.clock}, queries={"q": QueryState(SQL)},
                            chunks=tuple(self.chunks.values()), nodes=self.state)  # fmt: skip
        standing = Standing((STREAM,), WORKLOAD, {"q": self.sink}, manifest)
        ended = Flush("end") if flush else None
        decided = self.operator.decide(Ask(standing, self.epoch, ended, None)).nodes
        self.decided.append(decided["q"])
        decision = EpochDecision(self.epoch, self.epoch, 0, 0, ("q",), flush=ended, nodes=decided)
        cut = self.operator.takes(WORKLOAD, decision).slicings[STORE.id]
        assert cut.apart
        watermark = self.clock.watermark_us
        rows = [row for row in rows if watermark is None or row[0] >= watermark]
        self.admitted += rows
        if rows:
            times = [row[0] for row in rows]
            self.clock = advance_clock(self.clock, STREAM, (min(times), max(times)), 0)
        if flush and self.clock.last_us is not None:
            end = self.operator.ends(standing, decision, {"r": self.clock})["r"]
            self.clock = StreamClock(self.clock.first_us, self.clock.last_us, end, 0)
        absorbed = self.absorb(rows, cut.slices)
        moment = Moment(decision, False, standing, frozenset({"q"}), absorbed, {"r": self.clock},
                        ending=frozenset(["q"] if last else []))  # fmt: skip
        stepped = self.operator.answer(moment)
        assert not stepped.failed, stepped.failed
        there = {**self.chunks, **{c.name: c for c in (*absorbed.chunks, *stepped.chunks)}}
        named = set(stepped.state["q"].chunks)
        self.chunks = {name: chunk for name, chunk in there.items() if name in named}
        for name in there.keys() - self.chunks.keys():
            (self.home / "state" / "state" / name).unlink()
        self.state = stepped.state
        self.observed.append(stepped.observed["q"])
        self.epoch += 1

    def absorb(self, rows: list[tuple[int, int | None, int | None]], slices: int) -> Absorbed:
        """Rows as two tasks of an epoch leave them: cut by the hash of their key."""
        chunks, counts = [], dict[tuple[str, int], int]()
        for half in (rows[::2], rows[1::2]):
            by_mini: dict[int, list[tuple[int, int | None, int | None]]] = {}
            for row in half:
                by_mini.setdefault(row[1] * 7 % slices if row[1] is not None else 0, []).append(row)
            parts = []
            for mini, some in by_mini.items():
                frame = pl.DataFrame(
                    {"p": [t for t, _, _ in some], "c0": [k for _, k, _ in some],
                     "c1": pl.Series([t for t, _, _ in some]).cast(pl.Datetime("us", "UTC")),
                     "c2": [v for _, _, v in some]},
                    schema={"p": pl.Int64, "c0": pl.Int32, "c1": pl.Datetime("us", "UTC"), "c2": pl.Int32},
                )  # fmt: skip
                parts.append((STORE.id, 1, mini, frame))
                counts[STORE.id, mini] = counts.get((STORE.id, mini), 0) + len(some)
            chunk = write_chunk(str(self.home / "state" / "state"), self.epoch, APART, parts)
            chunks += [chunk] if chunk is not None else []
        return Absorbed(tuple(chunks), slices=counts)

    def results(self) -> list[tuple[Any, ...]]:
        files = sorted((self.home / "out").glob("*.parquet"))
        return [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]

    def check(self) -> None:
        """All rows that are final have their results."""
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        table = pa.table(
            {name: [row[i] for row in self.admitted] for i, name in enumerate(("ts", "k", "v"))},
            schema=pa.schema([("ts", pa.int64()), ("k", pa.int32()), ("v", pa.int32())]),
        )
        connection.register("rows", table)
        assert self.clock.watermark_us is not None
        final = datetime.fromtimestamp(self.clock.watermark_us / 1e6, UTC)
        assert_same(
            self.results(),
            [row for row in connection.execute(DUCK).fetchall() if row[1] < final],
        )


def some_rows(rng: random.Random, epoch: int, count: int, hot: float = 0.5) -> list[tuple[int, int | None, int | None]]:
    """Rows in disorder, some late, some without key or value; times are never the same."""
    made = []
    for i in range(count):
        key = 1 if rng.random() < hot else rng.choice([None, *range(12)])
        base = epoch * 100_000 + rng.randrange(80) * 1000 - (rng.randrange(90_000) if rng.random() < 0.2 else 0)
        made.append((base + i, key, rng.choice([None, *range(-5, 6)])))
    return list({row[0]: row for row in made}.values())


def test_columns_of_the_store_are_those_the_test_writes() -> None:
    assert [(c.name, str(c.type)) for c in STORE.columns] == [("c0", "INT"), ("c1", "TIMESTAMP"), ("c2", "INT")]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), bins=st.integers(1, 3), shot=st.booleans(), carried=st.booleans())
def test_whatever_is_decided_and_lost_results_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, bins: int, shot: bool, carried: bool
) -> None:
    rng = random.Random(seed)
    chaos, processes = Chaos(rng), Processes(bins, rng, carried)
    world = World(tmp_path_factory.mktemp("world"), processes, FluxSettings(minis_per_bin=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "decide_keyed", chaos)
        patch.setattr(keyed, "SNAPSHOT_EPOCHS", rng.choice([1, 2, 5, 100]))
        for epoch in range(12):
            world.run(some_rows(rng, epoch, rng.choice([0, 1, 10, 60])))
            if rng.random() < 0.15:
                # A restart may change the way in which tasks get at files, while processes live on.
                processes.carried ^= rng.random() < 0.5
                world.start()
            if shot and rng.random() < 0.15:
                processes.memories.clear()
            on_disk = {path.name for path in (world.home / "state" / "state").iterdir()}
            assert world.chunks.keys() <= on_disk
        world.run([], flush=True)
    world.check()
    assert chaos.waits > 0 or bins == 1


def test_without_moves_nothing_is_read_and_a_move_reads_what_moves(tmp_path: Path) -> None:
    rng = random.Random(3)
    quiet = random.Random(0)
    quiet.random = lambda: 1.0  # type: ignore[method-assign]
    world = World(tmp_path, Processes(2, quiet), FluxSettings(minis_per_bin=8))
    for epoch in range(6):
        world.run(some_rows(rng, epoch, 80))
    assert [each.loaded_bytes for each in world.observed] == [0] * 6
    state = world.state["q"]
    mini = max(range(16), key=lambda m: state.state_bytes[m])
    owner = state.owners[mini]

    def move(state: KeyedState, bins: int, *_: object, **__: object) -> KeyedDecision:
        owners = tuple(1 - owner if m == mini else o for m, o in enumerate(state.owners))
        moved = Move(mini, owner, 1 - owner, state.state_bytes[mini], "the test says so")
        return KeyedDecision(owners, bins, (moved,), residence=(Residence(),) * bins)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "decide_keyed", move)
        world.run(some_rows(rng, 6, 80))
    assert world.observed[-1].loaded == (mini,)
    assert world.observed[-1].loaded_bytes > 0
    world.run(some_rows(rng, 7, 80))
    assert world.observed[-1].loaded_bytes == 0
    world.run([], flush=True)
    world.check()


def test_only_what_is_lost_takes_another_job_where_spark_carries_files(tmp_path: Path) -> None:
    rng, chaos = random.Random(7), Chaos(random.Random(8))
    quiet = random.Random(0)
    quiet.random = lambda: 1.0  # type: ignore[method-assign]
    processes = Processes(2, quiet, carried=True)
    world = World(tmp_path, processes, FluxSettings(minis_per_bin=4, budget_bytes=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "decide_keyed", chaos)
        patch.setattr(keyed, "SNAPSHOT_EPOCHS", 3)
        for epoch in range(12):
            world.run(some_rows(rng, epoch, 60))
            if epoch == 5:
                world.start()
        assert min(chaos.moves, chaos.waits, chaos.splits) > 0
        assert any(each.loaded for each in world.observed)
        assert processes.again == 0, "the driver knows of moves, of turns on disk and of its own restart"
        processes.memories.clear()
        world.run(some_rows(rng, 12, 60))
        assert processes.again == 2, "both bins lack what was lost, all of it at once"
        world.run([], flush=True)
    world.check()


def test_state_is_bounded_by_keys_and_not_by_time(tmp_path: Path) -> None:
    rng = random.Random(4)
    quiet = random.Random(0)
    quiet.random = lambda: 1.0  # type: ignore[method-assign]
    world = World(tmp_path, Processes(2, quiet), FluxSettings(minis_per_bin=4))
    sizes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed, "SNAPSHOT_EPOCHS", 8)
        for epoch in range(60):
            world.run(some_rows(rng, epoch, 40))
            sizes.append((len(world.chunks), sum(c.bytes for c in world.chunks.values())))
    # Two chunks of rows and two of snapshots an epoch, none older than a cycle and a half.
    assert max(count for count, _ in sizes) <= 4 * 12
    assert max(size for _, size in sizes[30:]) < 1.5 * max(size for _, size in sizes[:30])
    world.run([], flush=True)
    world.check()


def test_memory_that_is_short_sends_the_coldest_to_disk_and_every_row_gets_its_result(tmp_path: Path) -> None:
    rng = random.Random(5)
    quiet = random.Random(0)
    quiet.random = lambda: 1.0  # type: ignore[method-assign]
    world = World(tmp_path, Processes(2, quiet), FluxSettings(minis_per_bin=8))
    world.operator._memory_bytes = lambda: (600,)
    for epoch in range(20):
        world.run(some_rows(rng, epoch, 60))
    spilled = [sum(len(each.spilled) for each in decision.residence) for decision in world.decided]
    assert max(spilled) > 0
    assert any(decision.waits for decision in world.decided)
    world.run([], flush=True)
    world.check()


def test_in_its_last_epoch_nothing_of_a_query_waits(tmp_path: Path) -> None:
    rng = random.Random(6)
    world = World(tmp_path, Processes(2, rng), FluxSettings(minis_per_bin=8))
    world.operator._memory_bytes = lambda: (600,)
    for epoch in range(8):
        world.run(some_rows(rng, epoch, 60))
    assert world.decided[-1].waits
    world.run(some_rows(rng, 8, 60), last=True)
    assert world.decided[-1].waits, "the policy had some wait all the same"
    world.check()


def test_memory_of_a_bin_is_for_all_queries_together() -> None:
    worked = (keyed_task.Worked(0, 1, state=((0, 30), (1, 10))), keyed_task.Worked(1, 1, state=((0, 25),)))

    def rooms(own: int, shared: int, neighbours: int, work: int, *most: int) -> int:
        others = [keyed_task.BinReport(n, f"here:{n}", own, shared) for n in range(2, 2 + neighbours)]
        apart = keyed_task.BinReport(9, "there:1", 7, 7)
        report = keyed_task.BinReport(1, "here:1", own, shared, worked)
        return keyed._rooms([report, *others, apart], work, most)[1]

    # Of 65 bytes that are held, 40 are of one query and 25 of the other.
    assert [rooms(35, 1000, 0, work) for work in (0, 1)] == [75, 60]
    assert rooms(1000, 100, 3, 0) == 40 + 25, "a quarter of what is left to all"
    assert rooms(0, 100, 3, 0) == 40, "nothing is left to the process"
    assert [rooms(1000, 1000, 0, 0, 30, 50), rooms(1000, 1000, 0, 0, 20)] == [25, 0]


def test_the_order_of_rows_that_nothing_else_orders_is_the_order_in_which_they_came(tmp_path: Path) -> None:
    folder, struct = str(tmp_path), pl.Struct({"x": pl.Int32})

    def chunk(epoch: int, rows: dict[int, tuple[int, int, int]]) -> str:
        schema = {"p": pl.Int64, "c0": pl.Int32, "c1": struct}
        frames = {mini: pl.DataFrame([(t, k, {"x": x})], schema, orient="row") for mini, (t, k, x) in rows.items()}
        made = write_chunk(folder, epoch, APART, [("store", 1, mini, frame) for mini, frame in frames.items()])
        assert made is not None
        return made.name

    # Key 7, of mini-partition 1, has two rows at the same time; what tells them apart cannot be compared.
    log = ((15, chunk(15, {1: (100, 7, 1)})), (25, chunk(25, {1: (100, 7, 2), 0: (99, 1, 9)})))
    count = PlannedAggregate("n", "count", "BIGINT", False, "", (), ())
    spec = RowsSpec(3, ("c0",), ("c0",), (("k", "c0"), ("x", "c1")), ((count, None, "wide"),))
    x = pa.struct([("x", pa.int32())])
    kernel = RowsKernel(spec, pa.schema([("p", pa.int64()), ("c0", pa.int32()), ("c1", x)]))
    first = MiniWork(0, -(2**62), 20, None)
    bins = {bin_: (MiniWork(1, -(2**62), 10, None, (bin_, 2)),) for bin_ in (0, 1)}
    bins[0] = (first, *bins[0])
    work = KeyedWork(
        "q", "store", kernel, log, (), 1000, bins, {}, frozenset(), {}, 1 << 30, False, None,
        pa.schema([("k", pa.int32()), ("x", x), ("n", pa.int64())]), str(tmp_path / "out"),
    )  # fmt: skip
    found = []
    for bin_ in (0, 1):
        (report,) = KeyedTask(folder, 30, (work,))([bin_])
        assert report.worked[0].error is None
        found += pq.read_table(tmp_path / "out" / str(report.worked[0].file)).to_pylist()
    assert sorted((row["k"], row["x"]["x"], row["n"]) for row in found) == [(1, 9, 1), (7, 1, 1), (7, 2, 2)]


def wanted(here: Left) -> dict[str, set[int]]:
    """What bin 0 reads: it has 0 to 2, of which 1 was written in epoch 5, and 3 is on its way there."""
    minis = tuple(
        MiniWork(mini, 0, base, snapshot) for mini, base, snapshot in ((0, -1, None), (1, 5, "s"), (2, 6, None))
    )
    log = ((4, "a"), (5, "b"), (6, "c"))
    kernel: Any = None
    work = KeyedWork(
        "q", "store", kernel, log, ("f", "g"), 0, {0: minis}, {0: here}, frozenset(),
        {0: (MiniWork(3, 0, 4, "t"),)}, 1, False, None, pa.schema([]), "",
    )  # fmt: skip
    found = list(KeyedTask("folder", 7, (work,)).wants(0))
    assert {want.id for want in found} == {"store"}
    return {want.chunk: set(want.numbers or ()) for want in found}


@pytest.mark.parametrize(
    ("here", "read"),
    [
        pytest.param(
            Left("x", frozenset({0, 1, 2}), {3: frozenset("tbc")}), {}, id="its rows, where its process has all else"
        ),
        pytest.param(
            Left("x", frozenset({0}), {3: frozenset("tb")}), {"s": {1}, "c": {1, 3}}, id="and state it has not had"
        ),
        pytest.param(
            Left(), {"a": {0}, "b": {0, 3}, "c": {0, 1, 3}, "s": {1}, "t": {3}}, id="and everything after a start"
        ),
    ],
)
def test_what_a_bin_reads(here: Left, read: dict[str, set[int]]) -> None:
    assert wanted(here) == {"f": {0, 1, 2}, "g": {0, 1, 2}, **read}


def test_what_was_made_for_a_query_goes_with_it(tmp_path: Path) -> None:
    world = World(tmp_path, Processes(1, random.Random(0)), FluxSettings(minis_per_bin=1))
    for number in range(5):
        name = f"q{number}"
        manifest = Manifest(number - 1, number - 1, queries={name: QueryState(SQL)})
        plan = replace(PLAN, query=replace(PLAN.query, name=name))
        standing = Standing((STREAM,), Workload({}, {}, {}, flows={name: plan}), {}, manifest)
        world.operator.decide(Ask(standing, number, None, None))
    assert set(world.operator._queries) == {"q4"}
