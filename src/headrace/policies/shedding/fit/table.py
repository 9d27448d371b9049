"""The feasible input table of a place: which input rates the place and all its descendants can take, and their worth.

Section 3.1 of the paper. For every point of its grid a table has the rows that the place uses when rows arrive at those
rates, and the rows that reach the answers of each query. A point whose rows are all used is an entry in the paper's
sense. For a point beyond what the place can carry, the table has the best point below.

A table is what travels upstream. It survives JSON, and tells nothing of how a place keeps what it promises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from headrace.policies.shedding.amounts import FLOAT_SLACK, Amount, Array, from_json, slack, to_json
from headrace.policies.shedding.fit.grid import Grid
from headrace.policies.shedding.fit.steps import same

__all__ = ["Table"]

_PLAIN = ("place", "inputs", "queries", "grid", "gains", "error", "never")
_ARRAYS = ("needs", "worth", "scores", "limits")


@dataclass(frozen=True, eq=False)
class Table:
    """What a place promises for every point of a grid over its inputs.

    place, inputs  whose table it is, and the inputs that the grid spans
    needs          rows per second that are used of each input, one row per point
    worth          what the objective makes of them, one number per point
    scores         rows per second that reach the answers of each of the `queries`, one row per point
    limits         one row per place, this one and descendants: the part of its capacity that one row per second of each
                   input takes if nothing is shed. Rates that exceed no capacity need no shedding.
    gains          the most that one more row per second of each input adds to the worth
    error          the most by which the worth of any rates falls short of the optimum; None if unknown
    never          inputs whose rows must all be kept
    """

    place: str
    inputs: tuple[str, ...]
    queries: tuple[str, ...]
    grid: Grid
    needs: Array
    worth: Array
    scores: Array
    limits: Array
    gains: tuple[Amount, ...]
    error: Amount | None
    never: tuple[bool, ...]

    def __post_init__(self) -> None:
        size, width = self.grid.size, len(self.inputs)
        if not width == len(self.grid.steps) == len(self.gains) == len(self.never):
            raise ValueError(f"the table of '{self.place}' has {width} inputs, but not as many steps, gains and flags")
        shapes: tuple[tuple[int, ...], ...]
        shapes = ((size, width), (size,), (size, len(self.queries)), (max(1, len(self.limits)), width))
        for name, shape in zip(_ARRAYS, shapes, strict=True):
            array: Array = getattr(self, name)
            if array.shape != shape:
                raise ValueError(f"{name} of the table of '{self.place}' has shape {array.shape}, not {shape}")
            if array.dtype != object and not np.isfinite(array).all():
                raise ValueError(f"{name} of the table of '{self.place}' is not finite everywhere")
            array.setflags(write=False)
        points = self.grid.points
        if (self.needs > points + np.asarray(slack(1, self.exact)) * (1 + points)).any():
            raise ValueError(f"the table of '{self.place}' needs more rows at a point than arrive there")

    @property
    def exact(self) -> bool:
        """Whether all numbers are fractions."""
        return self.grid.exact

    @cached_property
    def is_entry(self) -> Array:
        """Whether all rows of a point are used, for every point: the entries of the paper's tables."""
        points = self.grid.points
        near = np.abs(self.needs - points) <= np.asarray(slack(1, self.exact)) * (1 + points)
        return np.asarray(near.all(axis=1), dtype=bool)

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return int(self.is_entry.sum())

    def fits(self, rates: Sequence[Amount]) -> bool:
        """Whether rates need no shedding, at this place and at its descendants."""
        if self.exact:
            return bool((self.limits @ np.array(rates, dtype=object) <= 1).all())
        return bool((self.limits @ np.array(rates, dtype=float)).max() <= 1 + FLOAT_SLACK)

    def worth_at(self, rates: Sequence[Amount]) -> Amount:
        """The worth of any rates, interpolated between the points around them."""
        found: Amount = sum(self.worth[number] * weight for number, weight in self.grid.points_around(rates))
        return found

    def in_floats(self) -> Table:
        """The same table with floats for fractions."""
        if not self.exact:
            return self
        grid = Grid(tuple(map(float, self.grid.spreads)), self.grid.steps)
        arrays = {name: getattr(self, name).astype(float) for name in _ARRAYS}
        error = None if self.error is None else float(self.error)
        return replace(self, grid=grid, gains=tuple(map(float, self.gains)), error=error, **arrays)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _PLAIN) and all(
            same(getattr(self, name), getattr(other, name)) for name in _ARRAYS
        )

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, the inverse of `from_json`."""
        return {
            "place": self.place,
            "inputs": list(self.inputs),
            "queries": list(self.queries),
            "grid": self.grid.to_json(),
            "gains": [to_json(gain) for gain in self.gains],
            "error": None if self.error is None else to_json(self.error),
            "never": list(self.never),
            **{name: _listed(getattr(self, name)) for name in _ARRAYS},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Table:
        """The table that was sent; ValueError if the value is no table, or its parts do not belong together."""
        try:
            inputs, queries = tuple(value["inputs"]), tuple(value["queries"])
            return cls(
                value["place"],
                inputs,
                queries,
                Grid.from_json(value["grid"]),
                _array(value["needs"], len(inputs)),
                _array(value["worth"], None),
                _array(value["scores"], len(queries)),
                _array(value["limits"], len(inputs)),
                tuple(map(from_json, value["gains"])),
                None if value["error"] is None else from_json(value["error"]),
                tuple(bool(flag) for flag in value["never"]),
            )
        except (KeyError, TypeError, ZeroDivisionError) as exc:
            raise ValueError(f"this is not a table: {exc!r}; `to_json` writes what is read here") from exc


def _listed(array: Array) -> list[Any]:
    if array.dtype != object:
        return list(array.tolist())
    return [to_json(value) if array.ndim == 1 else [to_json(each) for each in value] for value in array]


def _array(rows: list[Any], width: int | None) -> Array:
    flat = rows if width is None else [value for row in rows for value in row]
    array: Array = np.empty(len(flat), dtype=object if any(isinstance(value, str) for value in flat) else float)
    array[:] = [from_json(value) for value in flat]
    return array if width is None else array.reshape(len(rows), width)
