"""Random streams as files, one file per epoch, and DuckDB as the judge of what queries say about them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SECOND = 1_000_000
START = int(datetime(2024, 3, 10, 1, 30, tzinfo=UTC).timestamp()) * SECOND
SCHEMA = (
    "ts TIMESTAMP, k STRING, g INT, i INT, l BIGINT, x DOUBLE, y DOUBLE, d DECIMAL(12,2), s STRING, b BOOLEAN, day DATE"
)
ARROW = pa.schema(
    [
        ("ts", pa.timestamp("us", "UTC")), ("k", pa.string()), ("g", pa.int32()), ("i", pa.int32()),
        ("l", pa.int64()), ("x", pa.float64()), ("y", pa.float64()), ("d", pa.decimal128(12, 2)),
        ("s", pa.string()), ("b", pa.bool_()), ("day", pa.date32()),
    ]
)  # fmt: skip


def make_epochs(seed: int, epochs: int = 10, rows: int = 400, step_s: int = 20) -> list[pa.Table]:
    """Tables of rows in disorder, some late, with gaps, nulls, NaN, -0.0, infinities and a hot key."""
    rng = np.random.default_rng(seed)
    tables = []
    now = START
    for epoch in range(epochs):
        n = int(rng.integers(1, rows))
        ts = now + rng.integers(0, step_s * SECOND, n)
        ts -= np.where(rng.random(n) < 0.15, rng.integers(0, 60 * SECOND, n), 0)
        order = rng.permutation(n)

        def maybe(values: Sequence[Any], share: float = 0.1, n: int = n) -> list[Any]:
            return [None if rng.random() < share else value for value in values[:n]]

        specials = [float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 1.5]
        keys = np.where(rng.random(n) < 0.5, 0, rng.integers(0, 8, n))
        tables.append(
            pa.Table.from_pydict(
                {
                    "ts": pa.array(ts[order], pa.timestamp("us", "UTC")),
                    "k": maybe([f"k{key}" for key in keys]),
                    "g": maybe([int(v) for v in rng.integers(0, 4, n)], 0.2),
                    "i": maybe([int(v) for v in rng.integers(-1000, 1000, n)]),
                    "l": maybe([int(v) for v in rng.integers(-(2**52), 2**52, n)]),
                    "x": maybe([float(v) for v in 1e6 + rng.normal(0, 10, n)]),
                    "y": maybe([specials[v] for v in rng.integers(0, len(specials), n)]),
                    "d": maybe([Decimal(int(v)).scaleb(-2) for v in rng.integers(-(10**6), 10**6, n)]),
                    "s": maybe([f"word{v}" for v in rng.integers(0, 30, n)]),
                    "b": maybe([bool(v) for v in rng.integers(0, 2, n)]),
                    "day": maybe([date(2024, 1, 1 + int(v)) for v in rng.integers(0, 28, n)]),
                },
                schema=ARROW,
            )
        )
        # Every so often nothing happens for longer than a window.
        now += step_s * SECOND + (90 * SECOND if epoch % 4 == 3 else 0)
    return tables


def unique_times(tables: list[pa.Table]) -> list[pa.Table]:
    """The same tables with every time there is once, so that DuckDB's order is the only one."""
    seen: set[int] = set()
    made = []
    for table in tables:
        times = []
        for time in table["ts"].cast(pa.int64()).to_pylist():
            while time in seen:
                time += 1
            seen.add(time)
            times.append(time)
        made.append(table.set_column(0, "ts", pa.array(times, pa.timestamp("us", "UTC"))))
    return made


def write_epochs(folder: Path, tables: Iterable[pa.Table], first: int = 0) -> None:
    """Writes one file per epoch; Spark takes files in the order of their modification times.

    A file gets its name when it is whole and has its time: one that a running query saw with today's date would make it
    ignore all the others, which are years older.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables, first):
        path = folder / f".{number:05d}.tmp"
        pq.write_table(table, path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        path.rename(folder / f"{number:05d}.parquet")


@dataclass(frozen=True)
class Admission:
    """What the contract on time says about the rows: those that count, and how many came late."""

    rows: pa.Table
    late: int


def admit(tables: Sequence[pa.Table], lateness_s: float) -> Admission:
    """Rows not older than the watermark at the start of their epoch; written without the engine's help."""
    watermark, greatest, late, kept = -math.inf, -math.inf, 0, []
    for table in tables:
        ts = table["ts"].cast(pa.int64()).to_numpy()
        fine = ts >= watermark
        late += int((~fine).sum())
        kept.append(table.filter(pa.array(fine)))
        if fine.any():
            greatest = max(greatest, int(ts[fine].max()))
            watermark = greatest - lateness_s * SECOND
    return Admission(pa.concat_tables(kept), late)


def expected(
    rows: pa.Table, select: str, group_by: str, size_s: int, slide_s: int, hopping: bool, where: str = "true"
) -> list[tuple[Any, ...]]:
    """The SELECT over every window that holds rows (the papers' form without keys: over every window), by DuckDB."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("arrow_rows", rows)
    connection.execute("CREATE TABLE r AS SELECT *, epoch_us(ts) AS t FROM arrow_rows")
    first, last = connection.execute("SELECT min(t), max(t) FROM r").fetchone() or (0, 0)
    size, slide = size_s * SECOND, slide_s * SECOND
    phase = size % slide if hopping else 0
    begin = (first - phase) // slide * slide + phase + slide
    connection.execute(
        "CREATE TABLE w AS SELECT e - ? AS a, e AS z FROM range(?, ?, ?) x(e)", [size, begin, last + size + 1, slide]
    )
    always = not hopping and not group_by
    # A filter inside the aggregate would be needed to keep empty windows; a subquery filters first instead.
    sql = f"""
        SELECT make_timestamptz(w.a) AS window_start, make_timestamptz(w.z) AS window_end, {select}
        FROM w {"LEFT" if always else ""} JOIN (SELECT *, true AS here FROM r WHERE {where}) r
            ON r.t >= w.a AND r.t < w.z
        GROUP BY w.a, w.z{", " + group_by if group_by else ""}
    """
    return connection.execute(sql).fetchall()


def results(folder: Path) -> list[tuple[Any, ...]]:
    """All rows of a Parquet sink."""
    files = sorted(folder.glob("*.parquet"))
    return [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]


def assert_same(found: Iterable[tuple[Any, ...]], wanted: Iterable[tuple[Any, ...]]) -> None:
    """Equal multisets; floats within 1e-9 relative."""
    ours, theirs = sorted(map(_plain, found), key=_order), sorted(map(_plain, wanted), key=_order)
    assert len(ours) == len(theirs), f"{len(ours)} rows, DuckDB has {len(theirs)}"
    for mine, yours in zip(ours, theirs, strict=True):
        assert all(map(_close, mine, yours)), f"{mine} is not {yours}"


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_value(value) for value in row)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, float):
        return 0.0 if value == 0 else value
    if isinstance(value, list):
        return [_value(part) for part in value]
    return value


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    # With its place: a row with a NULL here and a row with a NULL there must not count as equal.
    exact = [(i, value is None, _rough(value)) for i, value in enumerate(row) if not isinstance(value, float | Decimal)]
    floats = [value for value in row if isinstance(value, float | Decimal)]
    # Roughly first, so that the last digits of one value do not decide about rows that differ in another.
    return (exact, [f"{value:.6g}" for value in floats], [f"{value:.10g}" for value in floats])


def _rough(value: Any) -> str:
    if isinstance(value, list):
        return str([f"{part:.6g}" if isinstance(part, float) else part for part in value])
    return str(value)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(a, float | Decimal | int) and isinstance(b, float | Decimal | int) and not isinstance(a, bool):
        return a == b or math.isclose(a, b, rel_tol=1e-9)
    return bool(a == b)
