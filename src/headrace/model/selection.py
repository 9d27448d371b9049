"""What a stream's `select` makes of its source's rows: terms one upon the other, a condition, and what unfolds."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.model.types import Column, DataType

__all__ = ["Selection", "Term", "Unfolding"]

# A column of a term; texts in quotation marks and names after a dot are none.
_NAME = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`|(?<![\w.])[ac]\d+\b")


@dataclass(frozen=True, slots=True)
class Term:
    """An expression that a row is made with, as the column `name`.

    Its SQL is over the source's columns, in a struct named as the stream is, and over terms of lower layers. `made`
    says what it is for, and `reads` are the names of what it reads and their SQL, for the reason of a rejection.
    """

    name: str
    sql: str
    type: DataType
    layer: int
    made: str
    reads: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Unfolding:
    """A term whose array becomes rows, one for each element, the column `name`, once all terms up to a layer are made.

    An `outer` one has a row of NULL for an array without elements.
    """

    term: Term
    name: str
    outer: bool
    layer: int


@dataclass(frozen=True, slots=True)
class Selection:
    """A `select`, bound: `reads` are the source's columns, `columns` those of the stream, with the terms they are.

    `where` is a term of layer 0; a row for which it does not hold is none of the stream's. Terms that read no element
    of what unfolds are evaluated before it does, so that a row of the source which cannot be made is rejected once.
    """

    text: str
    reads: tuple[Column, ...]
    columns: tuple[tuple[Column, str], ...]
    terms: tuple[Term, ...]
    where: Term | None = None
    unfolding: Unfolding | None = None

    @property
    def read(self) -> tuple[Column, ...]:
        """The columns of the source that some term reads."""
        terms = (*self.terms, *((self.where,) if self.where else ()))
        # Columns of terms stand alone, those of the source in a struct.
        names = {name for term in terms for name, sql in term.reads if "." in sql}
        return tuple(column for column in self.reads if column.name in names)

    @property
    def definitions(self) -> dict[str, str]:
        """By column of the stream what it is made of, down to the source."""
        made: dict[str, str] = {}
        for term in self.terms:
            sql = _NAME.sub(lambda found: f"({made[found[0]]})" if found[0] in made else found[0], term.sql)
            made[term.name] = sql
            if self.unfolding is not None and self.unfolding.term == term:
                made[self.unfolding.name] = f"explode({sql}, {self.unfolding.outer})"
        return {column.name: f"{made[term]} {column.type}" for column, term in self.columns}

    @property
    def rows(self) -> tuple[str | None, str | None]:
        """What decides which rows there are: the condition, and the array that unfolds."""
        unfolded = next((c.name for c, term in self.columns if self.unfolding and term == self.unfolding.name), None)
        return None if self.where is None else self.where.sql, self.definitions[unfolded] if unfolded else None
