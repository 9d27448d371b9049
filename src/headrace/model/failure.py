"""A failure as a value: whose it is, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import CorruptStateError, EngineError, HeadraceError, LockedError, QueryFailure, StateError
from headrace.hiding import hide

__all__ = ["LONGEST_CAUSE", "Failure", "Fault", "shown"]

# Characters of a cause in a manifest, a note or an error: enough for a sentence and the expression it is about. A value
# out of a row may be megabytes long.
LONGEST_CAUSE = 500


class Fault(StrEnum):
    """Whose a failure is: a query's, that of the checkpoint's state, or that of machines."""

    QUERY = "query"
    CORRUPT = "corrupt state"
    LOCKED = "locked state"
    STATE = "state"
    MACHINE = "machine"


_ERRORS: dict[Fault, type[HeadraceError]] = {
    Fault.QUERY: QueryFailure,
    Fault.CORRUPT: CorruptStateError,
    Fault.LOCKED: LockedError,
    Fault.STATE: StateError,
    Fault.MACHINE: EngineError,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, and whose fault it is; which query's, says the report or the job that has it."""

    fault: Fault
    text: str

    @property
    def is_a_querys(self) -> bool:
        return self.fault is Fault.QUERY

    def error(self) -> HeadraceError:
        """The same as an error to raise.

        >>> Failure(Fault.LOCKED, "another engine has it").error()
        LockedError('another engine has it')
        """
        return _ERRORS[self.fault](shown(self.text))


def shown(text: str) -> str:
    """A cause as it is shown and written down: without secrets, and cut to `LONGEST_CAUSE` characters.

    >>> shown("x" * 1000)[-5:], len(shown("x" * 1000)), shown("no such column")
    ('xx...', 500, 'no such column')
    """
    # Secrets go first: half of one would not be recognized.
    text = hide(text)
    return text if len(text) <= LONGEST_CAUSE else text[: LONGEST_CAUSE - 3] + "..."
