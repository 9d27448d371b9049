"""What every sink is: it takes the results of one query, epoch by epoch, and says what it has had."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headrace.errors import StateError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Sink", "had_before"]


class Sink(Protocol):
    """Takes the results of one query."""

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        """Takes an epoch's results; `replay` says that it may have been given some of them before. Rows, if known."""

    def last_epoch(self) -> int:
        """The last epoch it has had from this checkpoint; -1 if it has had none, or cannot tell."""
        return -1

    def forget(self) -> None:
        """Frees whatever it keeps beside the results: its query is gone."""
        return None


def had_before(where: str, last: int, epoch: int, replay: bool) -> bool:
    """Whether a sink that had epoch `last` has `epoch` already; StateError if it has it and that is no repetition.

    Only the epoch that a crash interrupted is given twice. Any other that is there was given by a later life of the
    checkpoint: to pass over it would lose the results of this one.
    """
    if last < epoch:
        return False
    if replay and last == epoch:
        return True
    raise StateError(
        f"{where} has had epoch {last} of this checkpoint, to which epoch {epoch} is new: the checkpoint was set back, "
        "or another engine runs on a copy of it; restore the newer one, give the query another place, or clear it"
    )
