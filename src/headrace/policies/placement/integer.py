"""The exact placement of any parts, shared ones included, as an integer program for HiGHS.

`x[p, a]` says that part p runs at site a. `f[p, q, a, b]` says that p runs at a and its reader q at b; its row and
column sums are p's and q's x. Where p has several readers, `w[p, k, a, b]` says that p at a sends at least its k-th
rate to b, so that what two readers at one site share is paid once. `t[p]` is when the farthest source reaches p. The
relaxation of this program is exact for trees without bounds, so that few branches are needed beside them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.policies.placement.arrays import Arrays, Floats, Ints

__all__ = ["Outcome", "Verdict", "least_cost", "least_latency", "size_of"]

# HiGHS stops at an absolute gap of 1e-6 and allows as much error in a row: costs and latencies are scaled so that this
# is less than one part in 10^9 of them.
_SCALE = 1e4
# Branches times variables after which the best placement so far is taken: some seconds. A limit in seconds would
# make the answer depend on the machine.
_MOST_WORK = 2_000_000


# Where new rows have entries: the row among the new ones, the column, the factor.
_Term = tuple[Ints, Ints, Floats | float]


class Verdict(enum.Enum):
    """What is known about an integer program."""

    PROVED = "the best there is"
    FOUND = "the best found"
    NONE = "there is none"
    UNKNOWN = "none found"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A site for every part, if there is one, and whether it is proved to be the best."""

    verdict: Verdict
    at: tuple[int, ...] | None


def size_of(arrays: Arrays, choices: Sequence[Ints]) -> int:
    """How many pairs of sites the program weighs; about as many variables as it has."""
    total = 0
    for part, readers in enumerate(arrays.readers):
        levels = len({rate for _, rate in readers}) if len(readers) > 1 else 0
        total += sum(len(choices[part]) * len(choices[reader]) for reader, _ in readers)
        total += levels * len(choices[part]) * max((len(choices[reader]) for reader, _ in readers), default=0)
    return total


def least_cost(
    arrays: Arrays, choices: Sequence[Ints], bound: float | None, charges: Sequence[Floats | None] | None = None
) -> Outcome:
    """The placement of least cost and charges within the bound and the capacities."""
    program = _Program(arrays, choices)
    program.pay()
    for part, charge in enumerate(charges or ()):
        if charge is not None:
            program.spend(program.x[part], charge[choices[part]])
    if bound is not None:
        program.time(bound)
    program.make_room()
    return program.solve()


def least_latency(arrays: Arrays, choices: Sequence[Ints]) -> Outcome:
    """The placement with the shortest longest path within the capacities."""
    program = _Program(arrays, choices)
    longest = program.variables(1, upper=np.inf)
    program.spend(longest, np.array([1.0]))
    program.time(None, longest)
    program.make_room()
    return program.solve()


class _Program:
    """Rows and columns while they are collected."""

    def __init__(self, arrays: Arrays, choices: Sequence[Ints]) -> None:
        self.arrays = arrays
        self.choices = choices
        self.spent: list[tuple[Ints, Floats]] = []
        self.upper: list[Floats] = []
        self.whole: list[Floats] = []
        self.count = 0
        self.rows: list[tuple[Ints, Ints, Floats]] = []
        self.low: list[Floats] = []
        self.high: list[Floats] = []
        self.height = 0
        self.x = [self.variables(len(sites), whole=True) for sites in choices]
        for part in range(len(choices)):
            self.limit([(np.zeros(len(self.x[part]), dtype=np.intp), self.x[part], 1.0)], 1, 1.0, 1.0)
        self.pairs = {
            (part, reader): self._pair(part, reader)
            for part, readers in enumerate(arrays.readers)
            for reader, _ in readers
        }

    def variables(self, count: int, whole: bool = False, upper: float = 1.0) -> Ints:
        """New columns."""
        self.upper.append(np.full(count, upper))
        self.whole.append(np.full(count, float(whole)))
        self.count += count
        return np.arange(self.count - count, self.count)

    def spend(self, columns: Ints, cost: Floats) -> None:
        """Adds to the objective."""
        self.spent.append((columns, cost))

    def limit(self, terms: Sequence[_Term], height: int, low: float, high: float) -> None:
        """New rows, each between `low` and `high`."""
        for row, column, factor in terms:
            self.rows.append((row + self.height, column, np.broadcast_to(factor, len(column)).astype(np.float64)))
        self.low.append(np.full(height, low))
        self.high.append(np.full(height, high))
        self.height += height

    def _pair(self, part: int, reader: int) -> Ints:
        """Columns f of a flow, as a matrix by the part's and the reader's sites."""
        wide, deep = len(self.choices[part]), len(self.choices[reader])
        if wide == 1:
            return self.x[reader].reshape(1, deep)
        if deep == 1:
            return self.x[part].reshape(wide, 1)
        columns = self.variables(wide * deep).reshape(wide, deep)
        row, column = np.divmod(np.arange(wide * deep), deep)
        self.limit([(row, columns.ravel(), 1.0), (np.arange(wide), self.x[part], -1.0)], wide, 0.0, 0.0)
        self.limit([(column, columns.ravel(), 1.0), (np.arange(deep), self.x[reader], -1.0)], deep, 0.0, 0.0)
        return columns

    def _delay(self, part: int, reader: int) -> Floats:
        return self.arrays.delay[np.ix_(self.choices[part], self.choices[reader])]

    def pay(self) -> None:
        """The cost of all flows; what a part sends to one site it sends once."""
        for part, readers in enumerate(self.arrays.readers):
            if len(readers) == 1:
                ((reader, rate),) = readers
                self.spend(self.pairs[part, reader].ravel(), rate * self._delay(part, reader).ravel())
                continue
            before = 0.0
            for rate in sorted({rate for _, rate in readers}):
                self._share(part, [reader for reader, other in readers if other >= rate], rate - before)
                before = rate

    def _share(self, part: int, readers: Sequence[int], rate: float) -> None:
        """So many bytes per second go, once, to every site where one of the readers is."""
        sites = np.unique(np.concatenate([self.choices[reader] for reader in readers]))
        wide, deep = len(self.choices[part]), len(sites)
        sent = self.variables(wide * deep).reshape(wide, deep)
        self.spend(sent.ravel(), rate * self.arrays.delay[np.ix_(self.choices[part], sites)].ravel())
        for reader in readers:
            wanted = self.pairs[part, reader].ravel()
            there = sent[:, np.searchsorted(sites, self.choices[reader])].ravel()
            order = np.arange(len(wanted))
            self.limit([(order, there, 1.0), (order, wanted, -1.0)], len(wanted), 0.0, np.inf)

    def time(self, bound: float | None, longest: Ints | None = None) -> None:
        """When parts are reached; answers within the bound, or before `longest`, which is in units of the farthest."""
        unit = bound if bound is not None else float(self.arrays.delay.max())
        unit = unit / _SCALE if unit > 0 else 1.0 / _SCALE
        reached = self.variables(len(self.arrays.names), upper=np.inf)
        one = np.zeros(1, dtype=np.intp)
        for (part, reader), columns in self.pairs.items():
            flat = columns.ravel()
            taken: _Term = (np.zeros(len(flat), dtype=np.intp), flat, -self._delay(part, reader).ravel() / unit)
            self.limit([(one, reached[[reader]], 1.0), (one, reached[[part]], -1.0), taken], 1, 0.0, np.inf)
        for end in self.arrays.ends:
            if longest is None:
                self.limit([(one, reached[[end]], 1.0)], 1, 0.0, (bound or 0.0) / unit)
            else:
                self.limit([(one, longest, 1.0), (one, reached[[end]], -1.0)], 1, 0.0, np.inf)

    def make_room(self) -> None:
        """No site runs more than its capacity."""
        for site in np.flatnonzero(np.isfinite(self.arrays.room)):
            room = float(self.arrays.room[site])
            unit = room / _SCALE if room > 0 else 1.0
            there = [
                (self.x[part][np.flatnonzero(sites == site)], self.arrays.load[part] / unit)
                for part, sites in enumerate(self.choices)
                if self.arrays.load[part] > 0
            ]
            self.limit([(np.zeros(len(x), dtype=np.intp), x, load) for x, load in there], 1, 0.0, room / unit)

    def solve(self) -> Outcome:
        # Most problems need no program, and the solver takes half a second to import.
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import coo_array

        cost = np.zeros(self.count)
        for spent_on, price in self.spent:
            np.add.at(cost, spent_on, price)
        top = float(cost.max(initial=0.0))
        rows, columns, factors = (np.concatenate(each) for each in zip(*self.rows, strict=True))
        matrix = coo_array((factors, (rows, columns)), shape=(self.height, self.count)).tocsr()
        result = milp(
            cost * (_SCALE / top) if top > 0 else cost,
            constraints=LinearConstraint(matrix, np.concatenate(self.low), np.concatenate(self.high)),
            integrality=np.concatenate(self.whole),
            bounds=Bounds(0.0, np.concatenate(self.upper)),
            options={"mip_rel_gap": 0.0, "node_limit": max(1, _MOST_WORK // self.count)},
        )
        if result.x is None:
            return Outcome(Verdict.NONE if result.status == 2 else Verdict.UNKNOWN, None)
        at = tuple(int(sites[result.x[x].argmax()]) for sites, x in zip(self.choices, self.x, strict=True))
        return Outcome(Verdict.PROVED if result.status == 0 else Verdict.FOUND, at)
