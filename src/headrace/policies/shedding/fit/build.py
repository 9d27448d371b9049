"""Building the table of one place, from its costs and the tables of its children.

A leaf generates its table from scratch (section 3.2 of the paper), other places build on the tables they receive (3.3).
Both do the same work: at every point of a grid over the inputs, find the flows into the branches that are worth the
most and fit the capacity. What a point drops at branches is its local plan, which stays at the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from headrace.policies.shedding.amounts import Amount, Array, amount
from headrace.policies.shedding.fit.grid import Grid, spread_by_error, spread_by_size
from headrace.policies.shedding.fit.merge_by_level import merge_by_level
from headrace.policies.shedding.fit.merge_by_price import merge_by_price, root_cluster
from headrace.policies.shedding.fit.outlets import Child, Outlets, collect_outlets
from headrace.policies.shedding.fit.steps import Steps, same
from headrace.policies.shedding.fit.table import Table
from headrace.policies.shedding.network import Place, Port
from headrace.policies.shedding.objective import Fair, Objective

__all__ = ["Prepared", "TableSettings", "build_table"]


@dataclass(frozen=True, slots=True)
class TableSettings:
    """How fine tables are: at most `size` points, or as many points as a largest `error` of one table takes.

    Of the children's combinations, merging looks at those of `prices` prices for throughput, of `levels` levels for
    fairness.
    """

    # Five or six points along each of four inputs. Random trees then come within 1 % of the optimum on average.
    size: int = 1000
    error: Amount | None = None
    # Half as many prices cost random trees another 0.2 % of the optimum.
    prices: int = 24
    # One level is 3 % of a share, and two levels are mixed.
    levels: int = 32

    def __post_init__(self) -> None:
        if self.size < 2 or self.prices < 2 or self.levels < 1:
            raise ValueError(f"tables have 2 points and prices or more, and 1 level or more, not {self}")
        if self.error is not None:
            object.__setattr__(self, "error", amount(self.error, "the largest error of a table", positive=True))


@dataclass(frozen=True, eq=False)
class Prepared:
    """A place that is ready to look rates up: its table, and its local plans.

    flows      rows per second into each branch, one row per point
    never      per branch, whether all rows are kept, for its own sake or for a descendant's
    spare      the branches in the order in which spare capacity goes to them; empty for fairness
    children   the children whose tables this table was built on
    steps      how the table was computed, so that an update need not compute it all again
    """

    place: Place
    table: Table
    flows: Array
    never: tuple[bool, ...]
    spare: tuple[int, ...]
    children: tuple[Child, ...] = ()
    steps: Steps = field(default_factory=Steps)

    @cached_property
    def rows(self) -> list[list[Amount]]:
        """The flows as lists, from which Python reads one row faster."""
        return list(self.flows.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prepared):
            return NotImplemented
        return self.place == other.place and self.table == other.table and same(self.flows, other.flows)

    __hash__ = None  # type: ignore[assignment]


def build_table(
    place: Place,
    tables: Mapping[str, Table],
    objective: Objective,
    settings: TableSettings | None = None,
    *,
    most: Mapping[Port, Amount] | None = None,
    row_prices: Mapping[Port, Amount] | None = None,
    before: Prepared | None = None,
) -> Prepared:
    """Builds the table of a place from the tables of its children.

    `most` is the highest rate that can arrive at an input, where known: points then lie where rates can be, and rows
    beyond are kept only if capacity is left. `row_prices` replaces the tables of some inputs of children: a row sent
    there is worth its price. The result does not depend on `before`, an earlier result for this place: it saves work.
    """
    settings = settings or TableSettings()
    steps = Steps(before.steps if before else None)
    outlets = collect_outlets(place, tables, objective, row_prices or {}, steps)
    high = _most_useful(outlets, objective, most or {})
    gains = steps.do("gains", _gains, outlets.fair, outlets.gain, outlets.input_of, len(place.inputs))
    grid = steps.do("grid", _spread, high, gains, settings)
    bound: Array | None = None
    if outlets.fair:
        flows = merge_by_level(outlets, grid, settings.levels)
    else:
        merged = merge_by_price(outlets, grid, settings.prices, steps)
        flows, bound = merged.flows, merged.bound
    worth, scores = outlets.value(flows, steps)
    # Mixing children's points can make a point worth less than one with fewer rows; then the latter's plan is taken.
    best = grid.best_below(worth[None, :], outlets.never_input)[0]
    flows, worth, scores = flows[best], worth[best], scores[best]
    table = Table(
        place.name,
        tuple(each.name for each in place.inputs),
        outlets.queries,
        grid,
        outlets.taken(flows),
        worth,
        scores,
        outlets.limits(steps),
        gains,
        None if bound is None else _error(outlets, grid, bound, worth),
        tuple(bool(flag) for flag in outlets.never_input),
    )
    flows.setflags(write=False)
    never = tuple(bool(flag) for flag in outlets.never)
    return Prepared(place, table, flows, never, _spare_order(outlets), outlets.children, steps)


def _spread(high: Sequence[Amount], gains: Sequence[Amount], settings: TableSettings) -> Grid:
    if settings.error is None:
        return spread_by_size(high, gains, max(settings.size, 2 ** len(high)))
    return spread_by_error(high, gains, settings.error)


def _error(outlets: Outlets, grid: Grid, bound: Array, worth: Array) -> Amount | None:
    """The most by which the worth of any rates falls short of the optimum; None if a child's error is unknown.

    Rates in a cell are worth at least its lowest point. At the optimum they are worth no more than the bound of its
    highest point, but for the errors of the children. This covers both the spread of the grid and the thinning.
    Where an input must keep all rows, more rows can be worth less, and nothing is known.
    """
    if outlets.never_input.any() or any(child.table.error is None for child in outlets.children):
        return None
    highest = bound.reshape(grid.shape)[(slice(1, None),) * len(grid.shape)]
    lowest = worth.reshape(grid.shape)[(slice(None, -1),) * len(grid.shape)]
    error: Amount = max((highest - lowest).max(), 0) + sum(child.table.error or 0 for child in outlets.children)
    return error if outlets.exact else float(error)


def _gains(fair: bool, gain: Array, input_of: Array, inputs: int) -> tuple[Amount, ...]:
    """The most that one more row of each input can add to the worth."""
    mine = [gain[input_of == number].tolist() for number in range(inputs)]
    return tuple(max(each) if fair else sum(each) for each in mine)


def _spare_order(outlets: Outlets) -> tuple[int, ...]:
    if outlets.fair:
        return ()
    free = [n for n, gain in enumerate(outlets.gain) if gain > 0 and not outlets.cost[n]]
    costly = [n for n, gain in enumerate(outlets.gain) if gain > 0 and outlets.cost[n]]
    return (*free, *sorted(costly, key=lambda n: outlets.gain[n] / outlets.cost[n], reverse=True))


def _most_kept(outlets: Outlets, number: int, children: Mapping[int, Amount]) -> Amount | None:
    """The highest rate at which those rows of an input that must be kept fit here and at the children."""
    kept = [n for n in np.flatnonzero(outlets.input_of == number).tolist() if outlets.never[n]]
    cost = outlets.before[number] + sum(outlets.cost[n] for n in kept)
    selectivity = {n: outlets.place.branches[n][1].selectivity for n in kept}
    limits = [children[n] / selectivity[n] for n in kept if n in children and selectivity[n]]
    return min([*limits, *([outlets.capacity / cost] if cost else [])], default=None)


def _most_useful(outlets: Outlets, objective: Objective, most: Mapping[Port, Amount]) -> tuple[Amount, ...]:
    """The highest rate of each input that can arrive and be used if all other inputs are silent."""
    found: list[Amount] = []
    children = {int(b): child.table.grid.most[n] for child in outlets.children for n, b in enumerate(child.branches)}
    for number, each in enumerate(outlets.place.inputs):
        mine = np.flatnonzero(outlets.input_of == number).tolist()
        before, capacity = outlets.before[number], outlets.capacity
        limits: list[Amount] = []
        for n in mine:
            cost, selectivity = before + outlets.cost[n], outlets.place.branches[n][1].selectivity
            limit = [capacity / cost] if cost else []
            limit += [children[n] / selectivity] if n in children and selectivity else []
            limits += [min(limit)] if limit else []
        high = max(limits, default=capacity)
        if outlets.never_input[number]:
            high = _most_kept(outlets, number, children) or high
        elif not outlets.fair and not any(n in children for n in mine):
            high = capacity / root_cluster(outlets, number)[1]
        # Shares are shares of what is offered, so a fair table ends there.
        port, known = Port(outlets.place.name, each.name), objective.offered if isinstance(objective, Fair) else most
        high = min(high, known.get(port, high)) or high
        found.append(high if outlets.exact else float(high))
    return tuple(found)
