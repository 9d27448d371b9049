"""What flows along each edge, in rows and bytes per second: as declared, guessed, or measured.

Guesses follow the textbook (Selinger et al., "Access Path Selection", 1979): a tenth of the rows has a given value, a
third is on one side of a bound. They are good enough to begin with, and what a run has measured takes their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headrace.model import Column, DataType, Kind, SiteMeasures, SitePlan, Stream

__all__ = ["Flowing", "KnownRates", "learned", "row_bytes", "selectivity", "stream_flow"]

# Of a stream whose file declares no rate.
GUESSED_ROWS_PER_S = 1000.0
# Bytes of a value of each kind as Arrow holds it; of what has any length, what is common in logs.
_BYTES = {
    Kind.BOOLEAN: 1, Kind.TINYINT: 1, Kind.SMALLINT: 2, Kind.INT: 4, Kind.BIGINT: 8, Kind.FLOAT: 4, Kind.DOUBLE: 8,
    Kind.DECIMAL: 16, Kind.STRING: 16, Kind.BINARY: 64, Kind.DATE: 4, Kind.TIMESTAMP: 8, Kind.TIMESTAMP_NTZ: 8,
    Kind.INTERVAL: 16, Kind.ARRAY: 64, Kind.MAP: 64, Kind.NULL: 0, Kind.UNKNOWN: 16,
}  # fmt: skip
# Different values of a key as long as nothing is known of it.
GUESSED_VALUES = 1000.0
EQUAL, BOUNDED, ALIKE, IS_NULL = 0.1, 1 / 3, 0.1, 0.05


@dataclass(frozen=True, slots=True)
class Flowing:
    """Rows per second, and bytes of a row."""

    rows_per_s: float
    row_bytes: float

    @property
    def bytes_per_s(self) -> float:
        return self.rows_per_s * self.row_bytes

    def passed(self, share: float) -> Flowing:
        """The share of the rows that a filter lets through."""
        return replace(self, rows_per_s=self.rows_per_s * share)


@dataclass(frozen=True)
class KnownRates:
    """What was measured: rows per second of streams, and pane rows that a synopsis makes of each row of its streams.

    Of pipelines with sites also what links have told: by stream and birthplace the rows per second and the share of
    rows that travelled, by name of panes how many a row makes, and bytes of files per byte of types, of rows and panes;
    and `running`, the plan that the sites were cut by.
    """

    streams: Mapping[str, float] = field(default_factory=dict)
    panes: Mapping[str, float] = field(default_factory=dict)
    births: Mapping[tuple[str, str], float] = field(default_factory=dict)
    travelled: Mapping[tuple[str, str], float] = field(default_factory=dict)
    sent_panes: Mapping[str, float] = field(default_factory=dict)
    row_packing: float = 1.0
    pane_packing: float = 1.0
    running: SitePlan | None = None

    def knows(self, stream: str, site: str) -> bool:
        """Whether what a stream brings at a site was measured."""
        return stream in self.streams or (stream, site) in self.births


def width_of(type_: DataType) -> float:
    """Bytes of a value of a type."""
    if type_.kind is Kind.STRUCT:
        return sum(width_of(part.type) for part in type_.fields)
    return float(_BYTES[type_.kind])


def row_bytes(columns: Iterable[Column]) -> float:
    """Bytes of a row with these columns."""
    return sum(width_of(column.type) for column in columns)


def learned(measured: Mapping[str, SiteMeasures]) -> KnownRates:
    """What sites have told each other of their streams and links.

    >>> from headrace.model import LinkMeasure, StreamMeasure
    >>> rows = LinkMeasure("hub", "r", 900, 30, 90, 40.0, 0, 3_000_000)
    >>> known = learned({"rome": SiteMeasures(7, {"r": StreamMeasure(90, 0, 3_000_000)}, {"r_1": rows})})
    >>> known.births, round(known.travelled["r", "rome"], 3), known.row_packing
    ({('r', 'rome'): 30.0}, 0.333, 0.75)
    """
    births: dict[tuple[str, str], float] = {}
    travelled: dict[tuple[str, str], float] = {}
    panes: dict[str, list[int]] = {}
    files, types = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    for site, measures in measured.items():
        births |= {(n, site): rate for n, each in measures.streams.items() if (rate := each.rows_per_s) is not None}
        for link in measures.links.values():
            merged = link.panes is not None
            files[merged] += link.bytes
            types[merged] += link.rows * link.row_bytes
            if link.panes is not None:
                sent, used = panes.setdefault(link.panes, [0, 0])
                panes[link.panes] = [sent + link.rows, used + link.used]
            elif link.stream in measures.streams and link.used:
                travelled[link.stream, site] = min(1.0, link.rows / link.used)
    packing = {merged: files[merged] / types[merged] if files[merged] and types[merged] else 1.0 for merged in files}
    shares = {name: min(1.0, sent / used) for name, (sent, used) in panes.items() if used}
    return KnownRates({}, {}, births, travelled, shares, packing[False], packing[True])


def stream_flow(stream: Stream, known: KnownRates, birthplaces: int = 1, site: str = "") -> Flowing:
    """What a stream brings at a site where it is born."""
    rate, width = stream.rate, row_bytes(stream.columns)
    if (stream.name, site) in known.births:
        return Flowing(known.births[stream.name, site], width)
    if stream.name in known.streams:
        return Flowing(known.streams[stream.name] / birthplaces, width)
    if rate is None:
        return Flowing(GUESSED_ROWS_PER_S, width)
    if rate.rows_per_s is not None and rate.bytes_per_s is not None:
        return Flowing(rate.rows_per_s, rate.bytes_per_s / rate.rows_per_s)
    return Flowing(rate.rows_per_s if rate.rows_per_s is not None else (rate.bytes_per_s or 0.0) / width, width)


def selectivity(where: str | None) -> float:
    """The share of rows that a filter is guessed to let through.

    >>> selectivity("p.port = 80"), selectivity("p.port IN (80, 443) AND p.length > 100"), selectivity(None)
    (0.1, 0.06666666666666667, 1.0)
    """
    if where is None:
        return 1.0
    try:
        return _share(sqlglot.parse_one(where, dialect="spark"))
    except SqlglotError:
        return BOUNDED


def _share(node: exp.Expr) -> float:
    match node:
        case exp.Paren():
            return _share(node.this)
        case exp.And():
            return _share(node.left) * _share(node.right)
        case exp.Or():
            a, b = _share(node.left), _share(node.right)
            return a + b - a * b
        case exp.Not():
            return 1 - _share(node.this)
        case exp.EQ() | exp.NullSafeEQ():
            return EQUAL
        case exp.NEQ():
            return 1 - EQUAL
        case exp.In():
            return min(0.5, EQUAL * max(1, len(node.expressions)))
        case exp.Like() | exp.ILike() | exp.RegexpLike():
            return ALIKE
        case exp.Is():
            return IS_NULL
        case exp.Boolean():
            return 1.0 if node.this else 0.0
        case _:
            return BOUNDED
