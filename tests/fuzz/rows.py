"""Typed random streams: every type the engine takes, and the values that break things.

Columns come in two tempers. Tame ones (`i`, `x`, `d`, ...) are small or dyadic, so that sums are exact in any order and
rarely overflow; wild ones (`lx`, `y`, `dx`, ...) hold extremes, NaN, infinities and far dates, and are only compared,
counted, grouped and cast.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from world import SECOND, START, admit

__all__ = ["ARROW", "COLUMNS", "LATENESS_S", "SCHEMA", "Column", "World", "make_world"]

LATENESS_S = {"l": 6, "r": 3}
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Column:
    """A column of both streams: its name, Spark type, Arrow type, the fuzzer's kind, and how a value is drawn."""

    name: str
    ddl: str
    arrow: pa.DataType
    kind: str
    draw: Callable[[random.Random], Any]


# Letters whose case folds to several letters or depends on the place, a surrogate pair, a combining accent beside its
# composed form, a right-to-left word, blanks of several kinds, and what LIKE, regular expressions and JSON take badly.
STRINGS = (
    "", " ", "a", "A", "b", "ab", "aB", "Zürich", "ZÜRICH", "straße", "STRASSE", "İstanbul", "ıi", "Σίσυφος", "ΣΑΣ", "ﬁn",
    "é", "e\u0301", "𝔘nicode", "😀", "👩‍👩‍👧", "שלום", "日本", "a%b", "a_b", "100%", "\\", "a\\b", "'", '"q"', "a|b", "a,b",
    "\t", "\n", "\u00a0", "\u200b", "k1 ", " k1", "0", "-1", "1.5", "NaN", "true", "null", "2024-03-10", "{\"a\":1}", "x" * 40,
)  # fmt: skip
_DOUBLES = (math.nan, -0.0, 0.0, math.inf, -math.inf, 1.5, -2.25, 1e308, -1e308, 5e-324, 1e-10, 2.0**53, 0.1)
_LONGS = (2**63 - 1, -(2**63), 0, -1, 1, 2**53 + 1, -(2**53) - 1, 2**31, -(2**31) - 1)
_DATES = (date(1, 1, 1), date(9999, 12, 31), date(1582, 10, 4), date(1582, 10, 15), date(1970, 1, 1), date(1969, 12, 31),
          date(2024, 2, 29))  # fmt: skip
_TIMES = (datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), datetime(1969, 12, 31, 23, 59, 59, 999999),
          datetime(1970, 1, 1), datetime(1900, 1, 1, 0, 0, 0, 1), datetime(2024, 3, 31, 1, 30))  # fmt: skip
_INSTANT = pa.timestamp("us", "UTC")


def _decimal(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    most = 10**digits - 1
    return lambda rng: _scaled(rng.choice((0, 1, -1, rng.randint(-most, most))), scale)


def _scaled(unscaled: int, scale: int) -> Decimal:
    # Not scaleb, which rounds to 28 digits.
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _wide(rng: random.Random) -> Decimal:
    most = 10**38 - 1
    return _scaled(rng.choice((most, -most, 0, 1, rng.randint(-(10**20), 10**20))), 18)


def _micros(rng: random.Random, span_s: int) -> datetime:
    base = _EPOCH + timedelta(microseconds=START)
    return base + timedelta(microseconds=rng.randrange(-span_s * SECOND, span_s * SECOND))


def _some(most: int, draw: Callable[[random.Random], Any]) -> Callable[[random.Random], list[Any]]:
    return lambda rng: [None if rng.random() < 0.15 else draw(rng) for _ in range(rng.randint(0, most))]


def _few_ints(rng: random.Random) -> int:
    return rng.randint(-9, 9)


def _string(rng: random.Random) -> str:
    return rng.choice(STRINGS)


def _word(rng: random.Random) -> str:
    return f"w{rng.randrange(6)}"


def _hot(rng: random.Random) -> str:
    return "k0" if rng.random() < 0.5 else f"k{rng.randrange(7)}"


COLUMNS = (
    Column("k", "STRING", pa.string(), "word", _hot),
    Column("g", "INT", pa.int32(), "int", lambda rng: rng.randint(0, 4)),
    Column("ti", "TINYINT", pa.int8(), "tiny", lambda rng: rng.choice((-128, 127, 0, rng.randint(-20, 20)))),
    Column("si", "SMALLINT", pa.int16(), "small", lambda rng: rng.choice((-32768, 32767, 0, rng.randint(-300, 300)))),
    Column("i", "INT", pa.int32(), "int", lambda rng: rng.randint(-1000, 1000)),
    Column("ix", "INT", pa.int32(), "wildint", lambda rng: rng.choice((2**31 - 1, -(2**31), 0, 7, rng.randint(-9, 9)))),
    Column("v", "BIGINT", pa.int64(), "long", lambda rng: rng.randint(-(2**40), 2**40)),
    Column("lx", "BIGINT", pa.int64(), "wildlong", lambda rng: rng.choice(_LONGS)),
    Column("f", "FLOAT", pa.float32(), "float", lambda rng: rng.randint(-4096, 4096) / 16),
    Column("x", "DOUBLE", pa.float64(), "double", lambda rng: rng.randint(-(2**20), 2**20) / 64),
    Column("y", "DOUBLE", pa.float64(), "wilddouble", lambda rng: rng.choice(_DOUBLES)),
    Column("u", "DOUBLE", pa.float64(), "specdouble",
           lambda rng: rng.choice((*_DOUBLES[:5], 1.5)) if rng.random() < 0.2 else rng.randint(-99, 99) / 8),
    Column("yf", "FLOAT", pa.float32(), "wildfloat", lambda rng: rng.choice((*_DOUBLES[:7], 3.4e38, 0.1))),
    Column("d", "DECIMAL(12,2)", pa.decimal128(12, 2), "decimal", _decimal(9, 2)),
    Column("d0", "DECIMAL(5,0)", pa.decimal128(5, 0), "decimal", _decimal(5, 0)),
    Column("e", "DECIMAL(38,10)", pa.decimal128(38, 10), "bigdecimal", _decimal(24, 10)),
    Column("w", "DECIMAL(38,18)", pa.decimal128(38, 18), "bigdecimal", _decimal(26, 18)),
    Column("wx", "DECIMAL(38,18)", pa.decimal128(38, 18), "wilddecimal", _wide),
    Column("s", "STRING", pa.string(), "string", _string),
    Column("q", "STRING", pa.string(), "word", _word),
    Column("z", "BINARY", pa.binary(), "binary", lambda rng: rng.choice((b"", b"\x00", b"ab", b"\xff\xfe", rng.randbytes(5)))),
    Column("b", "BOOLEAN", pa.bool_(), "bool", lambda rng: rng.random() < 0.5),
    Column("day", "DATE", pa.date32(), "date", lambda rng: date(2024, 1, 1) + timedelta(days=rng.randrange(90))),
    Column("dx", "DATE", pa.date32(), "wilddate", lambda rng: rng.choice(_DATES)),
    Column("at", "TIMESTAMP", _INSTANT, "time", lambda rng: _micros(rng, 86_400)),
    Column("ax", "TIMESTAMP", _INSTANT, "wildtime", lambda rng: rng.choice(_TIMES)),
    Column("nt", "TIMESTAMP_NTZ", pa.timestamp("us"), "ntz", lambda rng: _micros(rng, 86_400 * 40)),
    Column("ai", "ARRAY<INT>", pa.list_(pa.int32()), "ints", _some(4, _few_ints)),
    Column("sa", "ARRAY<STRING>", pa.list_(pa.string()), "strings", _some(3, _word)),
    Column("st", "STRUCT<a: INT, b: STRING>", pa.struct([("a", pa.int32()), ("b", pa.string())]), "struct",
           lambda rng: {"a": None if rng.random() < 0.2 else _few_ints(rng), "b": _word(rng)}),
    Column("mp", "MAP<STRING, INT>", pa.map_(pa.string(), pa.int32()), "map",
           lambda rng: [(key, _few_ints(rng)) for key in ("a", "b", "c")[: rng.randint(0, 3)]]),
)  # fmt: skip
SCHEMA = "ts TIMESTAMP, n BIGINT, " + ", ".join(f"{c.name} {c.ddl}" for c in COLUMNS)
ARROW = pa.schema([("ts", _INSTANT), ("n", pa.int64()), *((c.name, c.arrow) for c in COLUMNS)])


@dataclass(frozen=True)
class World:
    """Two streams cut into epochs, and of each the rows that count, computed without the engine's help."""

    epochs: dict[str, list[pa.Table]]

    @property
    def admitted(self) -> dict[str, pa.Table]:
        return {name: admit(tables, LATENESS_S[name]).rows for name, tables in self.epochs.items()}

    @property
    def late(self) -> int:
        return sum(admit(tables, LATENESS_S[name]).late for name, tables in self.epochs.items())


def make_world(rng: random.Random, epochs: int = 5, rows: int = 40, step_s: int = 8) -> World:
    """Rows in disorder, some late, many at equal times and on edges of windows, gaps longer than a window."""
    made: dict[str, list[pa.Table]] = {name: [] for name in LATENESS_S}
    now, serial = START, 0
    for epoch in range(epochs):
        for tables in made.values():
            # Now and then a stream is silent for an epoch, but never in the first.
            n = rng.randint(rows // 2, rows) if epoch == 0 or rng.random() > 0.1 else 0
            times = []
            for _ in range(n):
                t = now + rng.randrange(step_s * SECOND)
                t -= rng.randrange(12 * SECOND) if rng.random() < 0.2 else 0
                times.append(t // SECOND * SECOND if rng.random() < 0.4 else t)
            columns: dict[str, list[Any]] = {"ts": times, "n": list(range(serial, serial + n))}
            for column in COLUMNS:
                share = rng.choice((0.0, 0.1, 0.1, 0.3))
                columns[column.name] = [None if rng.random() < share else column.draw(rng) for _ in range(n)]
            tables.append(pa.table([pa.array(columns[f.name], f.type) for f in ARROW], schema=ARROW))
            serial += n
        now += step_s * SECOND + (rng.choice((25, 40)) * SECOND if rng.random() < 0.2 else 0)
    return World(made)
