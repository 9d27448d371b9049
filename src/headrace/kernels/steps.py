"""User-defined state: a function of the user's, called once per mini-partition and epoch with Arrow tables.

The function is code that somebody trusts: it runs in the executors with all their rights. Its tables are checked: what
it returns must have the columns it was declared with, in types that convert without loss.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import polars as pl
import pyarrow as pa

from headrace.errors import EngineError, QueryFailure
from headrace.kernels.keyed import Turn, Turned, by_mini
from headrace.kernels.sound import to_arrow

__all__ = ["StepKernel"]

# What the columns of a function's state begin with in files, where rows have columns of ours.
_THEIRS = "s."
StepCall = Callable[[pa.Table, pa.Table], tuple[pa.Table, pa.Table]]


@cache
def _unpacked(code: bytes) -> Callable[..., Any]:
    return pickle.loads(code)  # type: ignore[no-any-return]


def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the user's function returns; whatever it raises is its query's failure, if there is memory left."""
    try:
        return function(*arguments)
    except MemoryError:
        raise
    except Exception as error:
        raise QueryFailure(f"{type(error).__name__}: {error}".splitlines()[0]) from error


@dataclass
class StepState:
    """State of some mini-partitions: a table of each, and rows that are not final yet."""

    tables: dict[int, pa.Table]
    rows: pl.DataFrame


@dataclass(frozen=True)
class StepKernel:
    """Calls a function for every mini-partition that has final rows, in the order of their time."""

    name: str
    code: bytes
    columns: tuple[tuple[str, str], ...]  # (name the function knows it by, column of the store)
    ties: tuple[str, ...]
    schema: pa.Schema  # of the store
    state: pa.Schema
    results: pa.Schema
    version: int
    migration: bytes | None = None

    def empty(self) -> StepState:
        return StepState({}, self.no_rows())

    def no_rows(self) -> pl.DataFrame:
        found = pl.from_arrow(self.schema.empty_table())
        assert isinstance(found, pl.DataFrame)
        return found.with_columns(pl.lit(0, pl.Int32).alias("m"))

    def loaded(self, parts: Sequence[tuple[str, int, pl.DataFrame]]) -> StepState:
        rows = [f.with_columns(pl.lit(mini, pl.Int32).alias("m")) for suffix, mini, f in parts if not suffix]
        tables: dict[int, list[pa.Table]] = {}
        for suffix, mini, frame in parts:
            if suffix:
                theirs = {name: name.removeprefix(_THEIRS) for name in frame.columns if name != "p"}
                table = to_arrow(frame.select(*theirs).rename(theirs))
                tables.setdefault(mini, []).append(self._migrated(table, int(suffix.removeprefix(".state"))))
        return StepState(
            {mini: pa.concat_tables(some) for mini, some in tables.items()},
            pl.concat(rows) if rows else self.no_rows(),
        )

    def _migrated(self, table: pa.Table, version: int) -> pa.Table:
        if version != self.version:
            if self.migration is None:
                raise EngineError(f"state of '{self.name}' has version {version}, its function wants {self.version}")
            table = _called(_unpacked(self.migration), table, version)
        return self._checked(table, self.state, "state")

    def _checked(self, table: Any, schema: pa.Schema, what: str) -> pa.Table:
        if not isinstance(table, pa.Table):
            raise TypeError(f"function '{self.name}' returned {type(table).__name__} as its {what}, not an Arrow table")
        missing = [name for name in schema.names if name not in table.column_names]
        if missing or len(table.column_names) != len(schema.names):
            raise TypeError(
                f"function '{self.name}' returned {what} with the columns {', '.join(table.column_names) or 'none'}; "
                f"declared are {', '.join(schema.names)}"
            )
        return table.select(schema.names).cast(schema)

    def only(self, state: StepState, minis: frozenset[int]) -> StepState:
        kept = {mini: table for mini, table in state.tables.items() if mini in minis}
        return StepState(kept, state.rows.filter(pl.col("m").is_in(sorted(minis))))

    def together(self, one: StepState, other: StepState) -> StepState:
        frames = [frame for frame in (one.rows, other.rows) if frame.height]
        return StepState({**one.tables, **other.tables}, pl.concat(frames) if frames else one.rows)

    def turn(self, turn: Turn) -> Turned:
        frames = [frame for frame in (turn.state.rows, turn.rows) if frame.height]
        if not frames:
            return Turned(turn.state, None, {})
        rows = pl.concat(frames)
        final = (rows["p"] < turn.final_us).to_numpy() & (rows["p"].to_numpy() >= by_mini(rows, turn.minis))
        ready = rows.filter(pl.Series(final)).sort(["p", *self.ties], maintain_order=True)
        tables, results, counts = dict(turn.state.tables), list[pa.Table](), dict[int, int]()
        step: StepCall = _unpacked(self.code)
        for (mini,), some in sorted(ready.partition_by("m", as_dict=True, include_key=False).items()):
            assert isinstance(mini, int)
            given = some.select(pl.col(source).alias(name) for name, source in self.columns)
            table = to_arrow(given)
            made = _called(step, tables.get(mini, self.state.empty_table()), table)
            if not isinstance(made, tuple) or len(made) != 2:
                raise TypeError(f"function '{self.name}' returned {type(made).__name__}, not (state, results)")
            tables[mini] = self._checked(made[0], self.state, "state")
            results.append(self._checked(made[1], self.results, "results"))
            counts[mini] = some.height
        rest = rows.filter(pl.Series(~final & (rows["p"] >= turn.final_us).to_numpy()))
        found = pa.concat_tables(results) if results else None
        return Turned(StepState(tables, rest), found, counts, frozenset(counts))

    def sizes(self, state: StepState) -> dict[int, int]:
        per_row = state.rows.estimated_size() / max(1, state.rows.height)
        sizes = {mini: round(n * per_row) for mini, n in state.rows["m"].value_counts().iter_rows()}
        for mini, table in state.tables.items():
            sizes[mini] = sizes.get(mini, 0) + int(table.nbytes)
        return sizes

    def parts(self, state: StepState, minis: frozenset[int]) -> Iterator[tuple[str, int, pl.DataFrame]]:
        for (mini,), rows in sorted(state.rows.partition_by("m", as_dict=True, include_key=False).items()):
            assert isinstance(mini, int)
            if mini in minis:
                yield "", mini, rows
        for mini, table in sorted(state.tables.items()):
            if mini in minis and table.num_rows:
                frame = pl.from_arrow(table)
                assert isinstance(frame, pl.DataFrame)
                named = frame.rename({name: _THEIRS + name for name in frame.columns})
                yield f".state{self.version}", mini, named.with_columns(pl.lit(0, pl.Int64).alias("p"))
