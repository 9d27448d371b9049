"""Which rows of a stream its edges keep: the fraction, and the hash that tells kept rows from shed ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

__all__ = ["Admission", "Shed", "edge_into", "threshold"]


def edge_into(node: str, stream: str) -> str:
    """The name of the edge along which a stream's rows go into a synopsis or a store."""
    return f"{stream}>{node}"


def threshold(keep: float) -> int:
    """The hash, a signed number of 64 bits, below which a row is kept.

    >>> threshold(0.5), threshold(0.0) == -(2**63), threshold(0.3) < threshold(0.5)
    (0, True, True)
    """
    return int(keep * 2**64) - 2**63


@dataclass(frozen=True, slots=True)
class Admission:
    """How the edges of one stream shed in one epoch.

    A row's hash is Spark's `xxhash64` over the columns in `hashed` and the `seed`. An edge with the fraction `keep`
    takes rows whose hash is in the lowest part of that size, so rows kept at 0.3 are among those kept at 0.5. Edges
    that are not named keep everything. An edge with `buckets` has a fraction for each bucket of keys instead, of which
    `keep` is the mean. Edges in `keyed` lead into joins: a row is kept if the hash of the join's key is in the lowest
    part of that size, whatever the epoch and the side, so that pairs survive together.
    """

    hashed: tuple[str, ...]
    seed: int
    keep: Mapping[str, float]
    buckets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    keyed: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for edge, keep in (*self.keep.items(), *self.keyed.items()):
            if not 0 <= keep < 1:
                raise ValueError(f"edge '{edge}' keeps a fraction from 0 to below 1, not {keep}")
        for edge, parts in self.buckets.items():
            if edge not in self.keep or not all(0 <= part <= 1 for part in parts):
                raise ValueError(f"edge '{edge}' keeps fractions from 0 to 1 of buckets, if it sheds, not {parts}")
        if self.keep and not self.hashed:
            raise ValueError("a hash needs columns")

    def most_of(self, edges: Iterable[str]) -> float:
        """The fraction of the stream's rows of which some of these edges may keep each; no edge keeps any other row.

        >>> Admission(("ts",), 1, {"s>a": 0.3, "s>b": 0.5}).most_of(["s>a", "s>b"])
        0.5
        """
        return max((max(self.buckets.get(edge, (self.keep.get(edge, 1.0),))) for edge in edges), default=0.0)


@dataclass(frozen=True, slots=True)
class Shed:
    """The account of an edge while it shed: rows that came along it, and how many of them were left out.

    >>> Shed(10, 3) + Shed(5, 0)
    Shed(rows=15, shed=3)
    """

    rows: int = 0
    shed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.shed <= self.rows:
            raise ValueError(f"an edge sheds some of its rows, not {self.shed} of {self.rows}")

    def __add__(self, other: Shed) -> Shed:
        return Shed(self.rows + other.rows, self.shed + other.shed)
