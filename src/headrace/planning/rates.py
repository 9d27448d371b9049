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

from headrace.model import Column, DataType, Kind, LinkMeasure, SiteMeasures, SitePlan, Stream

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
    rows that travelled, by name of panes how many a row makes, and of both the bytes of files per byte of types; and
    `running`, the plan that the sites were cut by.
    """

    streams: Mapping[str, float] = field(default_factory=dict)
    panes: Mapping[str, float] = field(default_factory=dict)
    births: Mapping[tuple[str, str], float] = field(default_factory=dict)
    travelled: Mapping[tuple[str, str], float] = field(default_factory=dict)
    sent_panes: Mapping[str, float] = field(default_factory=dict)
    row_packing: Mapping[tuple[str, str], float] = field(default_factory=dict)
    pane_packing: Mapping[str, float] = field(default_factory=dict)
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
    ({('r', 'rome'): 30.0}, 0.333, {('r', 'rome'): 0.75})
    """
    births: dict[tuple[str, str], float] = {}
    rows: dict[tuple[str, str], _Carried] = {}
    panes: dict[str, _Carried] = {}
    for site, measures in measured.items():
        births |= {(n, site): rate for n, each in measures.streams.items() if (rate := each.rows_per_s) is not None}
        for link in measures.links.values():
            if link.panes is not None:
                panes[link.panes] = panes.get(link.panes, _Carried()).with_link(link)
            elif link.stream in measures.streams:
                rows[link.stream, site] = rows.get((link.stream, site), _Carried()).with_link(link)
    return KnownRates(
        births=births,
        travelled={birth: share for birth, each in rows.items() if (share := each.share) is not None},
        sent_panes={name: share for name, each in panes.items() if (share := each.share) is not None},
        row_packing={birth: packing for birth, each in rows.items() if (packing := each.packing) is not None},
        pane_packing={name: packing for name, each in panes.items() if (packing := each.packing) is not None},
    )


@dataclass(frozen=True, slots=True)
class _Carried:
    """What links of a kind have carried together: bytes of files, bytes of types, rows, and rows they were made of."""

    file_bytes: int = 0
    type_bytes: float = 0.0
    rows: int = 0
    used: int = 0

    def with_link(self, link: LinkMeasure) -> _Carried:
        return _Carried(
            self.file_bytes + link.bytes,
            self.type_bytes + link.rows * link.row_bytes,
            self.rows + link.rows,
            self.used + link.used,
        )

    @property
    def share(self) -> float | None:
        return min(1.0, self.rows / self.used) if self.used else None

    @property
    def packing(self) -> float | None:
        return self.file_bytes / self.type_bytes if self.type_bytes else None


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
