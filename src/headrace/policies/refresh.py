"""When a table is read anew: first of all, when its definition changes, at a start, and as often as it says."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model import Snapshot, Table
from headrace.units import SECOND_US, format_duration

__all__ = ["RETRY_US", "Current", "Read", "decide_refresh"]

# A table that could not be read is tried again no sooner: each try may take a connection's time-out.
RETRY_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class Read:
    """A table is to be read; `or_else` is the snapshot that may serve if that fails and the table allows it."""

    reason: str
    or_else: Snapshot | None = None


@dataclass(frozen=True, slots=True)
class Current:
    """The snapshot there is serves on."""

    snapshot: Snapshot


def decide_refresh(table: Table, known: Snapshot | None, now_us: int, starting: bool) -> Read | Current:
    """What becomes of a table before an epoch; `starting` is the first one of a run that needs the table."""
    if known is None:
        return Read("no snapshot yet")
    if known.definition != table.definition:
        return Read("another source or other columns than before")
    if table.refresh_us is None:
        retry = known.tried_us is not None and now_us - known.tried_us >= RETRY_US
        return Read("read at every start", known) if starting or retry else Current(known)
    if known.tried_us is not None and now_us - known.tried_us < min(RETRY_US, table.refresh_us):
        return Current(known)
    if now_us - known.read_us >= table.refresh_us:
        return Read(f"refresh every {format_duration(table.refresh_us)}", known)
    return Current(known)
