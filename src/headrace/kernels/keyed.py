"""What a bin does in an epoch: state in its worker's memory, the epoch's rows of its mini-partitions, results.

State stays in the process between epochs, marked with a token that the attempt which made it reports to the driver. A
task that finds no state with the token it was told, or a mini-partition it did not have so far, reads it: the last
snapshot, and the rows in the chunks since. So a lost worker, a repeated attempt, a move, a turn of one that was on disk
and a restart are all the same: something to be read. The driver knows of all of them but lost workers and repeated
attempts, so where Spark carries files, what a task reads is mostly brought along.
"""

from __future__ import annotations

import os
import resource
import socket
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import CorruptStateError
from headrace.kernels.border import kernels, told
from headrace.kernels.carried import Want, current_box, need
from headrace.kernels.chunks import APART, Chunk, open_output, read_numbers, write_chunk
from headrace.kernels.finish import DirectFinish
from headrace.kernels.row_windows import RowsSpec, evaluate, in_order, trim
from headrace.kernels.sound import to_arrow

__all__ = [
    "BinReport",
    "Kernel",
    "KeyedTask",
    "KeyedWork",
    "Left",
    "MiniWork",
    "RowsKernel",
    "Turn",
    "Turned",
    "Worked",
    "by_mini",
]

# State of keys without new rows is left alone where it is so many times as much as the rest.
WORTH_LEAVING = 16
# Rows of a mini-partition in one part of a snapshot: what a long move reads at once.
PART_ROWS = 100_000
_NEVER = -(2**62)


@dataclass(frozen=True, slots=True)
class MiniWork:
    """A mini-partition to process: what was answered, where its state is, and which share of its rows is this bin's."""

    mini: int
    done_us: int
    base: int
    snapshot: str | None
    share: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class Turn:
    """An epoch as a kernel sees it: state of its mini-partitions, new rows, and before which time rows are final."""

    state: Any
    rows: pl.DataFrame  # with `m`, the mini-partition
    minis: Mapping[int, MiniWork]
    final_us: int


@dataclass
class Turned:
    """What a kernel made of an epoch; `touched` are mini-partitions whose state is another than the log's rows."""

    state: Any
    results: pl.DataFrame | pa.Table | None
    rows: dict[int, int]
    touched: frozenset[int] = frozenset()


class Kernel(Protocol):
    """What an operator does with rows and state of several mini-partitions; plain values that travel to tasks."""

    def empty(self) -> Any:
        """State of no mini-partition."""

    def no_rows(self) -> pl.DataFrame:
        """Rows of the store, none of them."""

    def loaded(self, parts: Sequence[tuple[str, int, pl.DataFrame]]) -> Any:
        """State from parts `(name, mini-partition, frame)` of a snapshot and of the chunks since."""

    def only(self, state: Any, minis: frozenset[int]) -> Any:
        """State of some of the mini-partitions."""

    def together(self, one: Any, other: Any) -> Any:
        """State of all mini-partitions of two."""

    def turn(self, turn: Turn) -> Turned:
        """One epoch."""

    def sizes(self, state: Any) -> dict[int, int]:
        """Bytes of state by mini-partition."""

    def parts(self, state: Any, minis: frozenset[int]) -> Iterator[tuple[str, int, pl.DataFrame]]:
        """A snapshot of some mini-partitions, as `loaded` reads it; names end the names of the parts."""


@dataclass(frozen=True)
class RowsKernel:
    """The row window: state is rows, the last of each key and those that are not final yet."""

    spec: RowsSpec
    schema: pa.Schema

    def empty(self) -> pl.DataFrame:
        return self.no_rows()

    def no_rows(self) -> pl.DataFrame:
        found = pl.from_arrow(self.schema.empty_table())
        assert isinstance(found, pl.DataFrame)
        return found.with_columns(pl.lit(0, pl.Int32).alias("m"))

    def loaded(self, parts: Sequence[tuple[str, int, pl.DataFrame]]) -> pl.DataFrame:
        frames = [frame.with_columns(pl.lit(mini, pl.Int32).alias("m")) for _, mini, frame in parts]
        return pl.concat(frames) if frames else self.empty()

    def only(self, state: pl.DataFrame, minis: frozenset[int]) -> pl.DataFrame:
        return state.filter(pl.col("m").is_in(sorted(minis)))

    def together(self, one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
        return pl.concat([frame for frame in (one, other) if frame.height]) if one.height or other.height else one

    def turn(self, turn: Turn) -> Turned:
        rows = self.together(turn.state, turn.rows)
        if rows.is_empty():
            return Turned(rows, None, {})
        fresh = (rows["p"] < turn.final_us).to_numpy() & (rows["p"].to_numpy() >= by_mini(rows, turn.minis))
        if not fresh.any():
            return Turned(rows, None, {})
        rest = None
        if rows.height > WORTH_LEAVING * int(fresh.sum()):
            keys = list(self.spec.keys)
            active = rows.filter(pl.Series(fresh)).select(keys).unique()
            rest = rows.join(active, on=keys, how="anti", nulls_equal=True)
            rows = rows.join(active, on=keys, how="semi", nulls_equal=True)
        ordered, group = in_order(rows, self.spec)
        final = (ordered["p"] < turn.final_us).to_numpy()
        wanted = final & (ordered["p"].to_numpy() >= by_mini(ordered, turn.minis))
        wanted = _shared(wanted, ordered, turn.minis)
        results = evaluate(ordered, group, wanted, self.spec)
        state = trim(ordered, group, final, self.spec)
        counts = ordered.filter(pl.Series(wanted))["m"].value_counts()
        return Turned(state if rest is None else self.together(rest, state), results, dict(counts.iter_rows()))

    def sizes(self, state: pl.DataFrame) -> dict[int, int]:
        per_row = state.estimated_size() / max(1, state.height)
        return {m: round(n * per_row) for m, n in state["m"].value_counts().iter_rows()}

    def parts(self, state: pl.DataFrame, minis: frozenset[int]) -> Iterator[tuple[str, int, pl.DataFrame]]:
        pieces = self.only(state, minis).partition_by("m", as_dict=True, include_key=False)
        for (mini,), frame in sorted(pieces.items()):
            assert isinstance(mini, int)
            yield from (("", mini, piece) for piece in frame.iter_slices(PART_ROWS))


def by_mini(rows: pl.DataFrame, minis: Mapping[int, MiniWork]) -> Any:
    """Per row the time before which its mini-partition has been answered."""
    times = {work.done_us for work in minis.values()}
    if len(times) == 1:
        return times.pop()
    table = np.full(max(minis) + 1, _NEVER, np.int64)
    for mini, work in minis.items():
        table[mini] = work.done_us
    return table[rows["m"].to_numpy()]


def _shared(wanted: Any, rows: pl.DataFrame, minis: Mapping[int, MiniWork]) -> Any:
    """Of a mini-partition whose work is shared, this bin's share of the rows: one run of neighbours."""
    shared = {mini: work.share for mini, work in minis.items() if work.share[1] > 1}
    if not shared:
        return wanted
    of_mini, mine = rows["m"].to_numpy(), wanted.copy()
    for mini, (number, shares) in shared.items():
        (at,) = np.nonzero(wanted & (of_mini == mini))
        mine[at] = np.arange(len(at)) * shares // max(1, len(at)) == number
    return mine


@dataclass(frozen=True)
class Left:
    """What an attempt has left in its bin's process: a token that marks it, and the mini-partitions it has state of.

    `ahead` has, by mini-partition that is on its way there, the chunks that need not be read any more.
    """

    token: str = ""
    minis: frozenset[int] = frozenset()
    ahead: Mapping[int, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class KeyedWork:
    """One query in an epoch: its kernel, its rows, its mini-partitions by bin, and where its results go."""

    name: str
    store: str
    kernel: Kernel
    log: tuple[tuple[int, str], ...]
    fresh: tuple[str, ...]
    final_us: int
    bins: Mapping[int, tuple[MiniWork, ...]]
    before: Mapping[int, Left]  # by bin the state to go on from
    saves: frozenset[int]  # mini-partitions of which a snapshot is written
    ships: Mapping[int, tuple[MiniWork, ...]]  # what a bin reads ahead of a move that takes more than an epoch
    ship_bytes: int
    direct: bool  # results go straight into the sink's staging folder
    finish: DirectFinish | None
    schema: pa.Schema
    staging: str

    def chunks_of(self, mini: MiniWork) -> list[str]:
        """The chunks that a mini-partition's state is in: its snapshot, and those with the rows since."""
        snapshot = [mini.snapshot] if mini.snapshot is not None else []
        return snapshot + [name for epoch, name in self.log if epoch > mini.base]

    def wants(self, bin_: int, here: Left) -> Iterator[Want]:
        """What a bin reads in whose process there is some state already."""
        mine = self.bins.get(bin_, ())
        wanted: dict[str, set[int]] = {name: {each.mini for each in mine} for name in self.fresh if mine}
        missing = [each for each in mine if each.mini not in here.minis]
        for each in (*missing, *self.ships.get(bin_, ())):
            known = here.ahead.get(each.mini, frozenset())
            for name in self.chunks_of(each):
                if name not in known:
                    wanted.setdefault(name, set()).add(each.mini)
        return (Want(name, self.store, frozenset(minis)) for name, minis in wanted.items())


@dataclass(frozen=True)
class Worked:
    """What a bin made of one query's epoch."""

    work: int
    bin: int
    left: Left = field(default_factory=Left)
    seconds: float = 0.0
    load_s: float = 0.0
    loaded_bytes: int = 0
    loaded: tuple[int, ...] = ()
    rows: tuple[tuple[int, int], ...] = ()
    state: tuple[tuple[int, int], ...] = ()
    snapshot: Chunk | None = None
    saved: tuple[int, ...] = ()
    file: str | None = None
    results: int = 0
    error: str | None = None


@dataclass(frozen=True)
class BinReport:
    """Where a bin was worked on, and the memory that was left then: to its process, and to all on its host together."""

    bin: int
    place: str  # host:process
    own_bytes: int
    shared_bytes: int
    worked: tuple[Worked, ...] = ()

    @property
    def host(self) -> str:
        return self.place.rpartition(":")[0]

    @property
    def held_bytes(self) -> int:
        return sum(size for each in self.worked for _, size in each.state)


# A part that was read: the end of its name, its mini-partition, its rows. Parts are known by chunk and offset.
Read = tuple[str, int, pl.DataFrame]
Parts = dict[tuple[str, int], Read]


@dataclass
class _Held:
    """State in this process, of one query, and what has been read of mini-partitions that are on their way here."""

    left: Left
    state: Any
    shipped: dict[int, Parts] = field(default_factory=dict)


# By folder and query; a worker has one bin.
_held: dict[tuple[str, str], _Held] = {}


@dataclass(frozen=True)
class KeyedTask:
    """Works on all nodes of a round in a bin, one after the other; one that fails does not disturb the others.

    `others` are nodes of other rounds, whose state stays.
    """

    folder: str
    epoch: int
    works: tuple[KeyedWork, ...]
    others: frozenset[str] = frozenset()

    def wants(self, bin_: int) -> Iterator[Want]:
        """What a bin reads whose process is as the last attempt has left it."""
        return (want for work in self.works for want in work.wants(bin_, work.before.get(bin_, Left())))

    def __call__(self, bins: Iterable[int]) -> Iterator[BinReport]:
        for bin_ in bins:
            for place in [place for place in _held if place[0] == self.folder]:
                if place[1] not in self.others | {work.name for work in self.works}:
                    del _held[place]  # of a query that is gone
            # Before anything is changed: should something be lacking, the task begins anew.
            need(want for work in self.works for want in work.wants(bin_, self._here(work, bin_)))
            worked = tuple(self._work(number, work, bin_) for number, work in enumerate(self.works))
            yield BinReport(bin_, f"{socket.gethostname()}:{os.getpid()}", _left_to_me(), _left_to_all(), worked)

    def _here(self, work: KeyedWork, bin_: int) -> Left:
        """What this process has of a query; state that another attempt has left counts for nothing."""
        held = _held.get((self.folder, work.name))
        if held is None:
            return Left()
        left, before = held.left, work.before.get(bin_)
        return left if before is not None and left.token == before.token else Left(ahead=left.ahead)

    def _work(self, number: int, work: KeyedWork, bin_: int) -> Worked:
        began = time.perf_counter()
        held = _held.pop((self.folder, work.name), None)
        try:
            with kernels():
                return self._turn(number, work, bin_, held, began)
        except Exception as error:  # the query's own: told, not raised
            return Worked(number, bin_, error=told(error))

    def _turn(self, number: int, work: KeyedWork, bin_: int, held: _Held | None, began: float) -> Worked:
        kernel, minis = work.kernel, {each.mini: each for each in work.bins.get(bin_, ())}
        mine = frozenset(minis)
        before = work.before.get(bin_)
        if held is None or before is None or held.left.token != before.token:
            held = _Held(Left(), kernel.empty(), {} if held is None else held.shipped)
        missing = sorted(mine - held.left.minis)
        state, loaded_bytes = self._installed(work, held, mine, [minis[mini] for mini in missing])
        ships = work.ships.get(bin_, ())
        shipped = {each.mini: held.shipped.get(each.mini, {}) for each in ships}
        # What Spark has carried here is here, however much it is.
        ship_bytes, whole = self._read(work, ships, shipped, work.ship_bytes if current_box() is None else None)
        loaded_bytes += ship_bytes
        load_s = time.perf_counter() - began
        turned = kernel.turn(Turn(state, self._fresh(work, mine), minis, work.final_us))
        own = frozenset(mini for mini, each in minis.items() if each.share[0] == 0)
        saved = (turned.touched | work.saves) & own
        snapshot = self._saved(work, turned.state, saved)
        file, results = self._deliver(work, turned.results)
        sizes = kernel.sizes(turned.state)
        ahead = {each.mini: frozenset(work.chunks_of(each)) for each in ships if whole}
        left = Left(uuid.uuid4().hex, mine, ahead)
        _held[self.folder, work.name] = _Held(left, turned.state, shipped)
        return Worked(
            number,
            bin_,
            left,
            time.perf_counter() - began,
            load_s if loaded_bytes else 0.0,
            loaded_bytes,
            tuple(missing),
            tuple(turned.rows.items()),
            tuple((mini, sizes.get(mini, 0)) for mini in sorted(own)),
            snapshot,
            tuple(sorted(saved)),
            file,
            results,
        )

    def _installed(
        self, work: KeyedWork, held: _Held, mine: frozenset[int], missing: Sequence[MiniWork]
    ) -> tuple[Any, int]:
        """State of all mini-partitions of this bin, and how many bytes of it were read."""
        state = held.state if held.left.minis <= mine else work.kernel.only(held.state, mine)
        found = {each.mini: held.shipped.get(each.mini, {}) for each in missing}
        loaded_bytes, _ = self._read(work, missing, found, None)
        # In the order in which rows came: ties may have nothing else to be broken by.
        came = {name: place for place, (_, name) in enumerate(work.log)}
        places = [(mini, *at) for mini, some in found.items() for at in some]
        places.sort(key=lambda place: (place[0], came.get(place[1], -1), place[2]))
        parts = [found[mini][name, offset] for mini, name, offset in places]
        return work.kernel.together(state, self._loaded(work, parts)) if parts else state, loaded_bytes

    def _fresh(self, work: KeyedWork, mine: frozenset[int]) -> pl.DataFrame:
        """The epoch's rows of this bin."""
        frames = [
            frame.with_columns(pl.lit(part.bin, pl.Int32).alias("m"))
            for name in work.fresh
            for _, part, frame in read_numbers(self.folder, name, work.store, mine)
        ]
        return pl.concat(frames) if frames else work.kernel.no_rows()

    def _saved(self, work: KeyedWork, state: Any, minis: frozenset[int]) -> Chunk | None:
        """A snapshot of some mini-partitions, if there are any."""
        if not minis:
            return None
        parts = ((f"{work.store}{name}", 1, mini, frame) for name, mini, frame in work.kernel.parts(state, minis))
        return write_chunk(self.folder, self.epoch, APART, parts)

    def _read(
        self, work: KeyedWork, minis: Sequence[MiniWork], found: Mapping[int, Parts], budget_bytes: int | None
    ) -> tuple[int, bool]:
        """Reads what is still missing of mini-partitions: how many bytes that was, and whether it was all.

        What was found of chunks that are not a mini-partition's state any more is forgotten.
        """
        numbers: dict[str, set[int]] = {}
        for each in minis:
            names = work.chunks_of(each)
            for name in names:
                numbers.setdefault(name, set()).add(each.mini)
            for place in [place for place in found[each.mini] if place[0] not in names]:
                del found[each.mini][place]
        size = 0
        for name, wanted in numbers.items():
            known = frozenset(offset for mini in wanted for chunk, offset in found[mini] if chunk == name)
            for suffix, part, frame in read_numbers(self.folder, name, work.store, frozenset(wanted), known):
                found[part.bin][name, part.offset] = suffix, part.bin, frame
                size += part.length
                if budget_bytes is not None and size >= budget_bytes:
                    return size, False
        return size, True

    def _loaded(self, work: KeyedWork, parts: Sequence[Read]) -> Any:
        """State from files. A query that fails may lose it: whatever is wrong with it stops the run instead."""
        try:
            with kernels():
                return work.kernel.loaded(parts)
        except MemoryError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {error}".splitlines()[0]
            raise CorruptStateError(f"state of query '{work.name}' cannot be taken over: {told}") from error

    def _deliver(self, work: KeyedWork, results: pl.DataFrame | pa.Table | None) -> tuple[str | None, int]:
        height = 0 if results is None else len(results)
        if results is None or not height:
            return None, 0
        if isinstance(results, pa.Table):
            table = results.cast(work.schema)
        elif work.finish is not None:
            table = work.finish.table(results)
        else:
            table = to_arrow(results).select(work.schema.names).cast(work.schema)
        name = f"{uuid.uuid4().hex}.parquet"
        with open_output(work.staging, name, make_folder=True) as out:
            pq.write_table(table, out, compression="snappy")
        return name, height


def _left_to_me() -> int:
    """Bytes that this process may still take: Spark limits it where `spark.executor.pyspark.memory` is set."""
    left = [1 << 40]
    for limit, used in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        most, _ = resource.getrlimit(limit)
        if most != resource.RLIM_INFINITY:
            left.append(int(most) - _status("/proc/self/status", used))
    return max(0, min(left))


def _left_to_all() -> int:
    """Bytes that the host, or the control group of this process, has left for all that run there."""
    return max(0, min([_status("/proc/meminfo", "MemAvailable:"), *(most - used for most, used in _groups())]))


def _groups() -> Iterator[tuple[int, int]]:
    """The limits of the control group this process is in and of those above it, and what each uses of them."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    except OSError:
        return
    inside = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    for folder in (Path("/sys/fs/cgroup") / inside, *(Path("/sys/fs/cgroup") / inside).parents):
        try:
            most = (folder / "memory.max").read_text().strip()
            if most != "max":
                cached = _lines(folder / "memory.stat").get("inactive_file", 0)
                yield int(most), int((folder / "memory.current").read_text()) - cached
        except (OSError, ValueError):
            continue


def _lines(path: Path) -> dict[str, int]:
    return {name: int(value) for name, value in (line.split() for line in path.read_text().splitlines())}


def _status(path: str, name: str) -> int:
    """A line of the kernel's about memory, in bytes; plenty where there is no such file."""
    try:
        with open(path, encoding="ascii", errors="replace") as lines:
            return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 1 << 40)
    except OSError:
        return 1 << 40
