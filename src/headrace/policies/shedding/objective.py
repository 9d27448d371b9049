"""What shedding maximises: rows that reach answers, weighted, or the least share that any query gets.

The scores of a table entry are the rows per second that reach the answers of each query. The entry's worth is what the
objective makes of them. The worth of several children is the sum of theirs for `Throughput`, the least for `Fair`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from headrace.policies.shedding.amounts import Amount, amount
from headrace.policies.shedding.network import Port

__all__ = ["Fair", "Objective", "Throughput", "by_priority"]

# Costs per row rarely differ by this factor, so a row of one priority outweighs any row of the next lower priority.
# Weights of three priorities stay within what a table of floats tells apart.
PRIORITY_STEP = 1000


@dataclass(frozen=True)
class Throughput:
    """Rows per second that reach answers, each row times the weights of its query and of its stream.

    Queries and streams without a weight weigh 1. Without any weights this is the paper's total throughput.
    """

    queries: Mapping[str, Amount] = field(default_factory=dict)
    streams: Mapping[str, Amount] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("queries", "streams"):
            given: Mapping[str, Amount] = getattr(self, name)
            weights = {key: amount(value, f"the weight of '{key}'") for key, value in given.items()}
            object.__setattr__(self, name, weights)

    def row_worth(self, queries: tuple[str, ...], stream: str) -> Amount:
        """The worth of one row of a stream that reaches the answers of these queries."""
        one = Fraction(1)
        return sum((self.queries.get(query, one) for query in queries), Fraction(0)) * self.streams.get(stream, one)


@dataclass(frozen=True)
class Fair:
    """Max-min fairness: the least share of any query is as large as possible, and capacity left over is used.

    A share is the fraction of a branch's rows that the branch gets. `offered` has the rows per second that would arrive
    at every input without shedding (see `network.offered`). A query of weight 2 gets twice the share of a query of
    weight 1, up to all its rows. If several branches feed a query, its share is the least of theirs.
    """

    offered: Mapping[Port, Amount]
    weights: Mapping[str, Amount] = field(default_factory=dict)

    def __post_init__(self) -> None:
        weights = {key: amount(w, f"the weight of '{key}'", positive=True) for key, w in self.weights.items()}
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "offered", {Port(*port): rate for port, rate in self.offered.items()})

    def weight(self, queries: tuple[str, ...]) -> Amount:
        """The weight of a branch: the largest weight of the queries that share it."""
        return max((self.weights.get(query, Fraction(1)) for query in queries), default=Fraction(1))

    def full(self, port: Port, queries: tuple[str, ...]) -> Amount:
        """Rows per second into a branch that make a weighted share of 1; 0 where nothing is offered."""
        if port not in self.offered:
            raise ValueError(f"fairness needs the rate offered at {port}; `offered` computes it")
        return self.offered[port] * self.weight(queries)


Objective = Throughput | Fair


def by_priority(queries: Mapping[str, int], streams: Mapping[str, int] | None = None) -> Throughput:
    """Weights under which one row of a priority outweighs a thousand rows of the next lower priority.

    >>> by_priority({"alarms": 2, "reports": 1}).queries["alarms"]
    Fraction(1000000, 1)
    """
    step = Fraction(PRIORITY_STEP)
    return Throughput(
        {query: step**priority for query, priority in queries.items()},
        {stream: step**priority for stream, priority in (streams or {}).items()},
    )
