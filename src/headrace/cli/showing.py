"""How progress and status look: tables in a terminal, plain lines elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group
from rich.table import Table

from headrace.units import format_bytes

__all__ = ["epoch_line", "live_view", "show_status", "when"]


def when(us: int | None) -> str:
    """An instant in UTC, to the second.

    >>> when(1_704_067_200_000_000)
    '2024-01-01 00:00:00'
    """
    return "-" if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S")


def epoch_line(status: dict[str, Any]) -> str:
    """One epoch in one line."""
    last = status["last_epoch"]
    rows = sum(last["rows"].values())
    seconds = last["seconds"]
    due = ", ".join(f"{name} {count}" for name, count in last["due"].items()) or "none"
    rate = f"{rows / seconds:,.0f} rows/s" if seconds else ""
    return (
        f"epoch {status['epoch']}: {rows:,} rows in {seconds:.2f} s ({rate}), {last['jobs']} Spark jobs, "
        f"windows answered: {due}"
    )


def _streams(status: dict[str, Any]) -> Table:
    table = Table(title="streams", title_justify="left", expand=False)
    for name in ("stream", "rows in", "used", "late", "shed", "rejected", "event time", "watermark"):
        table.add_column(name, justify="right" if name in ("rows in", "used", "late", "shed", "rejected") else "left")
    for name, s in status["streams"].items():
        counts = (f"{s[key]:,}" for key in ("rows_in", "used", "late", "shed", "rejected"))
        table.add_row(name, *counts, when(s["last_us"]), when(s["watermark_us"]))
    return table


def _queries(status: dict[str, Any]) -> Table:
    table = Table(title="queries", title_justify="left", expand=False)
    for name in ("query", "state", "windows answered", "result rows", "answered up to"):
        table.add_column(name, justify="right" if name in ("windows answered", "result rows") else "left")
    for name, q in status["queries"].items():
        state = "running" if q["state"] == "running" else f"failed: {q['cause']}"
        table.add_row(name, state, f"{q['answers']:,}", f"{q['rows']:,}" if q["rows"] else "-", when(q["answered_us"]))
    return table


def live_view(status: dict[str, Any]) -> Group:
    """Streams, queries and the last epoch."""
    if status["epoch"] < 0:
        return Group("waiting for the first rows")
    state = status["state"]
    held = f"state: {format_bytes(state['bytes'])} in {state['chunks']} chunks"
    return Group(_streams(status), _queries(status), epoch_line(status), held)


def show_status(status: dict[str, Any]) -> None:
    """Prints a checkpoint's status."""
    console = Console()
    console.print(f"checkpoint {status['checkpoint']}", highlight=False)
    if status["epoch"] < 0:
        console.print("no epoch has been committed yet")
        return
    console.print(live_view(status))
    for decision in status["decisions"]:
        for idle in decision["idle"]:
            console.print(f"epoch {decision['epoch']}: stream {idle['stream']} is idle ({idle['reason']})")
        if decision["flush"]:
            console.print(f"epoch {decision['epoch']}: flushed ({decision['flush']['reason']})")
    rejected = sum(s["rejected"] for s in status["streams"].values())
    if rejected:
        console.print(f"{rejected:,} rejected rows are kept, with the reason, in {status['checkpoint']}/rejected")
