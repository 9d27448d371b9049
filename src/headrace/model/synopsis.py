"""Partial aggregates by pane: which rows they are of, by what, and what is kept of them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from headrace.model.types import DataType, Kind

__all__ = ["BUCKET_OFFSET", "NARROW_DIGITS", "ROWS", "SCALING", "Feed", "Measure", "Synopsis", "sum_of"]

# The column that counts rows.
ROWS = "n"
# Kinds of measures that say what shedding took away; they are sums of doubles.
SCALING = ("extra", "spread", "cross")
# Decimals of so many digits are added up as they are: 10^10 of the greatest of them fit into 38 digits.
NARROW_DIGITS = 28
# Log buckets of positive doubles lie within +-355,000 at a relative error of 0.1 %; the offset keeps them positive.
BUCKET_OFFSET = 1_000_000


@dataclass(frozen=True, slots=True)
class Feed:
    """One stream's rows as a synopsis takes them: Spark SQL for the filter, the group keys and the detail.

    With `panes` the rows are not there: the stream's column of that name brings panes that another site made of them.
    """

    stream: str
    where: str | None
    keys: tuple[str, ...]
    detail: str | None
    panes: str | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """A mergeable partial over an argument, in Spark SQL for each feed (None: over rows).

    `kind` is rows | count | sum | limbs | min | max | moments | extra | spread | cross. `limbs` is a sum in two
    columns, of wide decimals. The last three are about rows of which a fraction p was kept: `extra` is the sum of
    x (1/p - 1), which the sum lacks; `spread` the sum of (1 - p) x^2 / p^2, the variance of both together; `cross` the
    same of x and 1. All are 0 without shedding; over rows, x is 1.
    """

    kind: str
    arguments: tuple[str, ...] | None
    type: DataType

    @property
    def column(self) -> str:
        """The column that holds it in every synopsis: named by content, so that measures can come and go."""
        if self.arguments is None:
            return ROWS if self.kind == "rows" else f"{self.kind}_rows"
        return f"{self.kind}_{_digest([self.arguments, str(self.type)])}"

    def of(self, number: int) -> Measure:
        """The same over one of the feeds."""
        return self if self.arguments is None else replace(self, arguments=(self.arguments[number],))


@dataclass(frozen=True, slots=True)
class Synopsis:
    """Which rows are kept, by pane, and by what group keys and detail; equal synopses are one.

    Rows that are kept `apart` are those of heavy queries, which under overload lose fewer of them than others do.
    Neither the length of the panes nor the measures kept belong to its identity: both follow the queries it serves.
    """

    feeds: tuple[Feed, ...]
    keys: tuple[DataType, ...]
    detail: DataType | None = None
    keep: int | None = None
    apart: bool = False

    @property
    def id(self) -> str:
        """A name made of the content alone, the same in every process and version."""
        return _digest(
            [
                [[f.stream, f.where, f.keys, f.detail, *filter(None, [f.panes])] for f in self.feeds],
                [str(key) for key in self.keys],
                str(self.detail),
                self.keep,
                *(["apart"] if self.apart else []),
            ]
        )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:12]


def sum_of(type_: DataType) -> str:
    """The kind of measure that holds a sum of values of a type without overflow.

    >>> sum_of(DataType(Kind.DECIMAL, 38, 10)), sum_of(DataType(Kind.DECIMAL, 28, 2)), sum_of(DataType(Kind.BIGINT))
    ('limbs', 'sum', 'sum')
    """
    return "limbs" if type_.kind is Kind.DECIMAL and type_.precision > NARROW_DIGITS else "sum"
