"""Where the rows of a place go, as arrays: to answers, or to children that have sent their tables.

A child's table says what the child takes and what that is worth. Whether the child is an edge, a site or a simulated
host makes no difference here. A child's table maps to the inputs of its parent by the selectivity of the branch between
them (section 3.3 of the paper).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from headrace.policies.shedding.amounts import Amount, Array, are_exact, as_array, slack
from headrace.policies.shedding.fit.grid import Around, Grid
from headrace.policies.shedding.fit.steps import Steps
from headrace.policies.shedding.fit.table import Table
from headrace.policies.shedding.network import Branch, Place, Port
from headrace.policies.shedding.objective import Fair, Objective

__all__ = ["Child", "Filled", "Outlets", "collect_outlets", "fill"]


@dataclass(frozen=True, eq=False)
class Child:
    """A child: its table, and for each of its inputs the branch that feeds it, with the numbers of that branch.

    `inputs` are the inputs of this place that the branches start at. `rows_per_row` is the inverse of the selectivity:
    how many rows of the branch make one row of the child.
    """

    table: Table
    branches: Array
    inputs: Array
    selectivity: Array
    rows_per_row: Array
    cost: Array


@dataclass(frozen=True, eq=False)
class Outlets:
    """The branches of a place as arrays, one element per branch unless said otherwise.

    input_of       the input that the branch starts at
    before         per input: its cost before the split
    gain           the most that a row adds to the worth
    credit         rows of each query's answers that a row becomes
    full           for a fair objective: rows per second that make a share of 1
    highest_share  for a fair objective: the largest share of any branch to answers that gets all its rows
    direct         the numbers of the branches to answers, or to inputs with a price
    never          whether all rows must be kept; `never_input` says the same per input
    """

    place: Place
    exact: bool
    capacity: Amount
    fair: bool
    queries: tuple[str, ...]
    input_of: Array
    before: Array
    cost: Array
    gain: Array
    credit: Array
    full: Array
    highest_share: Amount
    direct: Array
    never: Array
    never_input: Array
    children: tuple[Child, ...]

    def taken(self, flows: Array) -> Array:
        """Rows per second that are used of each input: as many as its busiest branch takes."""
        inputs = range(len(self.before))
        return np.stack([flows[:, self.input_of == number].max(axis=1) for number in inputs], axis=1)

    def load(self, flows: Array) -> Array:
        """The capacity that flows of rows into the branches use."""
        return np.asarray((self.taken(flows) * self.before).sum(axis=1) + (flows * self.cost).sum(axis=1))

    def value(self, flows: Array, steps: Steps) -> tuple[Array, Array]:
        """Worth and scores of flows of rows into the branches, by the children's tables."""
        direct = flows[:, self.direct]
        scores = direct @ self.credit[self.direct]
        parts = self._direct_worths(flows)
        for child in self.children:
            table, name = child.table, child.table.place
            sent = flows[:, child.branches] * child.selectivity
            around = steps.do((name, "sent"), Grid.around, table.grid, sent)
            parts.append(steps.do((name, "sent worth"), Around.blend, around, table.worth))
            scores[:, self._columns(table.queries)] += steps.do((name, "scores"), Around.blend, around, table.scores)
        return (np.minimum.reduce(parts) if self.fair else np.sum(parts, axis=0)), scores

    def _columns(self, queries: tuple[str, ...]) -> slice | list[int]:
        """Where queries are among all queries; a slice, which is faster, if they are there in one piece."""
        start = self.queries.index(queries[0]) if queries else 0
        if self.queries[start : start + len(queries)] == queries:
            return slice(start, start + len(queries))
        return [self.queries.index(query) for query in queries]

    def _direct_worths(self, flows: Array) -> list[Array]:
        if not self.fair:
            return [flows[:, self.direct] @ self.gain[self.direct]]
        shares = [flows[:, number] / self.full[number] for number in self.direct if self.full[number] > 0]
        # Where no rows are offered, the share is full.
        return shares or [as_array([1] * len(flows), self.exact)]

    def limits(self, steps: Steps) -> Array:
        """For this place and its descendants, the part of the capacity that one row per second of each input takes.

        Places that take a smaller part of every input than another place are left out: the other is full first.
        """
        own = self.before.copy()
        np.add.at(own, self.input_of, self.cost)
        told = tuple((child.table.limits, child.inputs, child.selectivity) for child in self.children)
        return steps.do("limits", _limits, own / self.capacity, told)


def _limits(own: Array, children: tuple[tuple[Array, Array, Array], ...]) -> Array:
    rows = [own[None, :]]
    for limits, inputs, selectivity in children:
        mapped = np.full((len(limits), len(own)), own[0] * 0)
        for axis, number in enumerate(inputs):
            mapped[:, number] += limits[:, axis] * selectivity[axis]
        rows.append(mapped)
    found = np.concatenate(rows)
    return found[_undominated(found)]


# For each column of loads: the last row that fits, the next row, and the part of it that fits, 0 to 1.
Filled = tuple[Array, Array, Array]


def fill(loads: Array, capacity: Amount, exact: bool) -> Filled:
    """For each column of growing loads, the two rows whose mixture uses the capacity up.

    A mixture is feasible: loads add up, and the busiest branch of a mixture takes no more than the mixture of the
    busiest branches. Where even the first row does not fit, the result is the first row alone.
    """
    fits = np.asarray(loads <= capacity + slack(capacity, exact), dtype=bool)
    low = np.maximum(np.logical_and.accumulate(fits, axis=0).sum(axis=0) - 1, 0)
    high = np.minimum(low + 1, len(loads) - 1)
    column = np.arange(loads.shape[1])
    spare, step = capacity - loads[low, column], loads[high, column] - loads[low, column]
    is_mixed = np.asarray(step > 0, dtype=bool) & np.asarray(spare > 0, dtype=bool)
    part = np.minimum(np.where(is_mixed, spare / np.where(is_mixed, step, 1), 0), 1)
    return low, high, part


def _undominated(rows: Array) -> Array:
    """Which rows are not equalled or exceeded everywhere by another row; of equal rows the first stays."""
    under = (rows[:, None, :] <= rows[None, :, :]).all(axis=2).astype(bool)
    earlier = np.tri(len(rows), k=-1, dtype=bool)
    return np.asarray(~(under & (~under.T | earlier)).any(axis=1))


def collect_outlets(
    place: Place, tables: Mapping[str, Table], objective: Objective, row_prices: Mapping[Port, Amount], steps: Steps
) -> Outlets:
    """The outlets of a place, given the tables of its children.

    An input of a child that has a price needs no table: a row sent there is worth its price.
    """
    # On the points of the children's tables nothing depends here.
    told = tuple((name, t.exact, t.inputs, t.queries, t.gains, t.never) for name, t in tables.items())
    given = place, place.exact, objective, row_prices, told
    found = steps.do("outlets", lambda *_: _collect(place, tables, objective, row_prices), *given)
    now = (tables[child.table.place] for child in found.children)
    return replace(
        found,
        children=tuple(
            replace(child, table=table if found.exact else table.in_floats())
            for child, table in zip(found.children, now, strict=True)
        ),
    )


def _collect(
    place: Place, tables: Mapping[str, Table], objective: Objective, row_prices: Mapping[Port, Amount]
) -> Outlets:
    branches = place.branches
    ports = [branch.child for _, branch in branches if branch.child is not None and branch.child not in row_prices]
    names = list(dict.fromkeys(port.place for port in ports))
    missing = [name for name in names if name not in tables]
    if missing:
        raise ValueError(f"place '{place.name}' has no table of {missing}; `assume` makes one for an unknown child")
    fed = {name: _branches_to(place, tables[name], row_prices) for name in names}
    gains, fulls = _direct_gains(place, objective, row_prices)
    for name, numbers in fed.items():
        for number, gain in zip(numbers, tables[name].gains, strict=True):
            gains[number] = branches[number][1].selectivity * gain
    exact = place.exact and are_exact([*gains, *fulls]) and all(tables[name].exact for name in names)
    queries = [query for _, branch in branches for query in branch.queries]
    queries = list(dict.fromkeys([*queries, *(query for name in names for query in tables[name].queries)]))
    told = {name: tables[name] if exact else tables[name].in_floats() for name in names}
    children = tuple(_child(place, told[name], numbers, exact) for name, numbers in fed.items())
    never = _never(branches, children)
    linked = {number for numbers in fed.values() for number in numbers}
    credit = [branch.selectivity * (query in branch.queries) for _, branch in branches for query in queries]
    input_of = np.array([number for number, _ in branches])
    return Outlets(
        place,
        exact,
        place.capacity if exact else float(place.capacity),
        isinstance(objective, Fair),
        tuple(queries),
        input_of,
        as_array([each.cost for each in place.inputs], exact),
        as_array([branch.cost for _, branch in branches], exact),
        as_array(gains, exact),
        as_array(credit, exact).reshape(len(branches), len(queries)),
        as_array(fulls, exact),
        _highest_share(place, objective),
        np.array([number for number in range(len(branches)) if number not in linked], dtype=int),
        never,
        np.array([never[input_of == number].any() for number in range(len(place.inputs))]),
        children,
    )


def _direct_gains(
    place: Place, objective: Objective, row_prices: Mapping[Port, Amount]
) -> tuple[list[Amount], list[Amount]]:
    """Per branch: the gain of a row and the rows of a full share, both 0 where a child's table will tell."""
    gains: list[Amount] = []
    fulls: list[Amount] = []
    for number, branch in place.branches:
        each = place.inputs[number]
        if isinstance(objective, Fair):
            full = objective.full(Port(place.name, each.name), branch.queries) if branch.queries else Fraction(0)
            gains.append(1 / full if full else Fraction(0))
            fulls.append(full)
        else:
            worth = objective.row_worth(branch.queries, each.stream)
            gains.append(branch.selectivity * (worth if branch.child is None else row_prices.get(branch.child, worth)))
            fulls.append(Fraction(0))
    return gains, fulls


def _highest_share(place: Place, objective: Objective) -> Amount:
    if not isinstance(objective, Fair):
        return Fraction(0)
    shares = (1 / objective.weight(branch.queries) for _, branch in place.branches if branch.queries)
    return max(shares, default=Fraction(0))


def _branches_to(place: Place, table: Table, row_prices: Mapping[Port, Amount]) -> list[int]:
    """The numbers of the branches that feed the inputs of a table, in its order; ValueError if they do not match."""
    found = {
        branch.child.input: number
        for number, (_, branch) in enumerate(place.branches)
        if branch.child is not None and branch.child not in row_prices and branch.child.place == table.place
    }
    if set(found) != set(table.inputs):
        raise ValueError(
            f"place '{place.name}' feeds inputs {sorted(found)} of '{table.place}', whose table has "
            f"{sorted(table.inputs)}; a child with several parents sends each a table of its share (`share_of`)"
        )
    return [found[name] for name in table.inputs]


def _child(place: Place, table: Table, numbers: Sequence[int], exact: bool) -> Child:
    chosen = [place.branches[number] for number in numbers]
    selectivities = [branch.selectivity for _, branch in chosen]
    return Child(
        table,
        np.array(numbers),
        np.array([number for number, _ in chosen]),
        as_array(selectivities, exact),
        as_array([1 / each if each else Fraction(0) for each in selectivities], exact),
        as_array([branch.cost for _, branch in chosen], exact),
    )


def _never(branches: Sequence[tuple[int, Branch]], children: Sequence[Child]) -> Array:
    never = np.array([branch.never for _, branch in branches])
    for child in children:
        never[child.branches] |= np.array(child.table.never)
    return never
