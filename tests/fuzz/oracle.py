"""The judge: Spark's batch SQL over the admitted rows, and what counts as the same answer."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from world import SECOND, write_epochs

from fuzz.queries import Query
from fuzz.rows import World

__all__ = ["Judged", "Oracle", "aligned_ends", "covers", "difference", "results_of"]

# Small local jobs: code generation and adaptive plans cost more than they save.
_QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.autoBroadcastJoinThreshold": "10485760",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
}


@dataclass(frozen=True)
class Judged:
    """What Spark says: a table, or the first line of its complaint; `analysed` tells whether it took the query."""

    table: pa.Table | None = None
    error: str | None = None
    analysed: bool = True


class Oracle:
    """Asks Spark about queries, some at a time, each in a job of its own, so that one that raises disturbs nobody."""

    def __init__(self, spark: Any, world: World, home: Path) -> None:
        self.session = spark.newSession()
        for key, value in _QUICK.items():
            self.session.conf.set(key, value)
        self.times: dict[str, list[int]] = {}
        for name, rows in world.admitted.items():
            write_epochs(home / name, [rows])
            frame = self.session.read.parquet(str(home / name)).selectExpr("*", "ts AS _t").coalesce(1)
            # One partition: no plan over it needs a shuffle.
            self.session.createDataFrame(frame.toArrow(), frame.schema).coalesce(1).createOrReplaceTempView(name)
            self.times[name] = sorted(rows["ts"].cast(pa.int64()).to_pylist())

    def ask(self, asked: Sequence[tuple[Query, Iterable[int]]], at_once: int = 2) -> list[Judged]:
        """What Spark says about each query, given the ends of its windows in microseconds."""
        with ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(lambda each: self._ask(*each), asked))

    def _ask(self, query: Query, ends: Iterable[int]) -> Judged:
        listed = ", ".join(f"({end}L)" for end in ends)
        table = f"(SELECT * FROM VALUES {listed} AS given(e))" if listed else "(SELECT 0L AS e WHERE false)"
        sql = query.judge.replace("@ENDS@", table)
        # After the words array, map and struct Spark's lexer takes >> for the end of two types, unless they are quoted;
        # and struct(x AS a) must not be quoted.
        spelled = [sql] + [re.sub(rf"\b({words})\(", r"`\1`(", sql, flags=re.IGNORECASE)
                           for words in ("array|map", "array|map|struct") if ">>" in sql]  # fmt: skip
        for text in spelled:
            try:
                frame = self.session.sql(text)
                break
            except Exception as error:
                refusal = _first_line(error)
        else:
            return Judged(error=refusal, analysed=False)
        try:
            return Judged(frame.toArrow())
        except Exception as error:
            return Judged(error=_first_line(error))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "SQLSTATE" in line), lines[0] if lines else type(error).__name__)


def aligned_ends(times: Sequence[int], size_us: int, slide_us: int) -> list[int]:
    """The window ends that are multiples of the slide, from the first row's first window to the last row's last."""
    if not times:
        return []
    first, last = times[0] // slide_us * slide_us + slide_us, (times[-1] + size_us) // slide_us * slide_us
    return list(range(first, last + 1, slide_us))


def results_of(folder: Path) -> pa.Table | None:
    """All files of a Parquet sink as one table; None if there are none."""
    tables = [pq.ParquetFile(file).read() for file in sorted(folder.glob("*.parquet"))]
    schemas = {table.schema.remove_metadata().to_string() for table in tables}
    if len(schemas) > 1:
        raise ValueError(f"files of one query differ in their columns: {sorted(schemas)}")
    return pa.concat_tables(tables) if tables else None


def difference(found: pa.Table | None, wanted: pa.Table) -> str | None:
    """What tells two answers apart, or None: columns, types, or rows as multisets, floats within 1e-9."""
    if found is None:
        return (
            None
            if wanted.num_rows == 0
            else f"no results; Spark has {wanted.num_rows} rows, such as {wanted.slice(0, 1).to_pylist()}"
        )
    if found.column_names != wanted.column_names:
        return f"columns {found.column_names}; Spark has {wanted.column_names}"
    types = [
        (f.name, str(a), str(b))
        for f, a, b in zip(found.schema, map(_type, found.schema.types), map(_type, wanted.schema.types), strict=True)
        if a != b
    ]
    if types:
        return "; ".join(f"{name} is {a}, Spark's {b}" for name, a, b in types)
    ours, theirs = _rows(found), _rows(wanted)
    missing, extra = theirs - ours, ours - theirs
    if missing or extra:
        missing, extra = _unmatched(missing, extra)
    if not missing and not extra:
        return None
    shown = "".join(f"\n      - {_shown(row)}" for row in sorted(missing.elements(), key=repr)[:4])
    shown += "".join(f"\n      + {_shown(row)}" for row in sorted(extra.elements(), key=repr)[:4])
    return f"{missing.total()} rows of Spark's ({wanted.num_rows}) are missing, {extra.total()} of ours are extra; - Spark's, + ours:{shown}"


def _shown(row: tuple[Any, ...]) -> str:
    return ", ".join(str(value) for value in row)


def _type(type_: pa.DataType) -> pa.DataType:
    """A type as far as it matters: large or small offsets, names and nullability of inner fields do not."""
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    if pa.types.is_timestamp(type_):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_type(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_type(type_.key_type), _type(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _type(field.type)) for field in type_])
    return type_


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = [[_value(v) for v in column] for column in (_listed(table.column(i)) for i in range(table.num_columns))]
    return Counter(zip(*columns, strict=True)) if columns else Counter()


def _listed(column: pa.ChunkedArray) -> list[Any]:
    return column.cast(_countable(column.type)).to_pylist()


def _countable(type_: pa.DataType) -> pa.DataType:
    """A type with numbers for instants and days: Spark has some that are beyond Python's."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_list(type_):
        return pa.list_(_countable(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(_countable(type_.key_type), _countable(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _countable(field.type)) for field in type_])
    return type_


def _value(value: Any) -> Any:
    """A value that can be compared and hashed: NaN is NaN, -0.0 is 0.0, floats by their last bit."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((key, _value(inner)) for key, inner in value.items())
    if isinstance(value, list):
        if value and all(isinstance(item, tuple) for item in value):
            return tuple(sorted(((key, _value(inner)) for key, inner in value), key=repr))
        return tuple(_value(inner) for inner in value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    return value


def _unmatched(missing: Counter[tuple[Any, ...]], extra: Counter[tuple[Any, ...]]) -> tuple[Counter[Any], Counter[Any]]:
    """What is left when rows that differ only in the last digits of floats are matched with each other."""
    by_rest: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for row in extra.elements():
        by_rest.setdefault(_exact(row), []).append(row)
    left: Counter[tuple[Any, ...]] = Counter()
    for row in missing.elements():
        candidates = by_rest.get(_exact(row), [])
        match = next((c for c in candidates if all(map(_close, row, c))), None)
        if match is None:
            left[row] += 1
        else:
            candidates.remove(match)
    return left, Counter(row for rows in by_rest.values() for row in rows)


def _exact(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What of a row must be the same to the last bit."""
    return tuple("float" if _has_float(value) and value not in (math.inf, -math.inf) else value for value in row)


def _has_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, tuple) and any(_has_float(v) for v in value))


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)


def covers(ends: Sequence[int], times: Sequence[int], size_us: int, slide_us: int) -> str | None:
    """Whether the answered ends keep the promise of brackets: at least every slide, from the first row to the last."""
    if not times:
        return None
    if not ends:
        return "no window was answered"
    gap = max((b - a for a, b in pairwise(ends)), default=0)
    if gap > slide_us:
        return f"{gap / SECOND} s between two answers; the slide is {slide_us / SECOND} s"
    if ends[0] - slide_us > times[0]:
        return f"the first answer ends {(ends[0] - times[0]) / SECOND} s after the first row"
    if ends[-1] + slide_us <= times[-1] + size_us:
        return f"the last answer ends {(ends[-1] - times[-1]) / SECOND} s after the last row"
    return None
