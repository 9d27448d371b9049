"""What an operator remembers of a node from one epoch to the next, as far as every kind of it has that."""

from __future__ import annotations

__all__ = ["Remembered"]


class Remembered:
    """The base of what operators leave in a manifest; as it stands here, it goes with its query and has no chunks."""

    __slots__ = ()

    @property
    def outlives_queries(self) -> bool:
        """Whether it stays though the queries it is about may have gone."""
        return False

    @property
    def outlives_failure(self) -> bool:
        """Whether a query that failed goes on from here, though rows of the time in between are missing."""
        return False

    @property
    def chunks(self) -> tuple[str, ...]:
        """The chunks that hold nothing but this."""
        return ()
