"""A one-time query from the command line: asked once, shown as a table or as JSON."""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from headrace.engine import ask_checkpoint

__all__ = ["plain", "show_answer", "table_of"]

# Wider than any answer: what is not a terminal gets whole lines.
_UNBOUNDED = 100_000


def show_answer(checkpoint: str, sql: str, as_json: bool, master: str | None, conf: Mapping[str, str]) -> None:
    """Answers a SELECT from the panes of a checkpoint and prints its rows."""
    with _stdout_for_ourselves():
        answer = ask_checkpoint(checkpoint, sql, master, conf)
    rows = answer.to_pylist()
    if as_json:
        typer.echo(json.dumps([plain(row) for row in rows], allow_nan=False))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=_UNBOUNDED)
    console.print(table_of(answer, console.is_terminal), markup=False, highlight=False)
    typer.echo(f"{len(rows):,} row{'' if len(rows) == 1 else 's'}", err=True)


def table_of(answer: pa.Table, framed: bool = False) -> Table:
    """Rows to print; `framed` sets the names of the columns off."""
    table, rows = Table(box=box.SIMPLE if framed else None, pad_edge=False), answer.to_pylist()
    for field in answer.schema:
        number = rows and isinstance(rows[0][field.name], int | float | Decimal)
        table.add_column(field.name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_shown(value) for value in row.values()))
    return table


def plain(value: Any) -> Any:
    """A value as JSON has it: instants in UTC, decimals as text, so that no digit is lost.

    >>> plain({"at": datetime(2024, 1, 1, tzinfo=UTC), "sum": Decimal("1.10"), "mean": float("nan")})
    {'at': '2024-01-01T00:00:00Z', 'sum': '1.10', 'mean': 'NaN'}
    """
    match value:
        case dict():
            return {str(plain(key)): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case datetime():
            # A timestamp without a zone has none in JSON either.
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if value.tzinfo else value.isoformat()
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str() | int() | float() | None:
            return value
    return str(value)


def _shown(value: Any) -> str:
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC) if value.tzinfo else value:%Y-%m-%d %H:%M:%S.%f}".removesuffix(".000000")
    return "NULL" if value is None else str(value)


@contextlib.contextmanager
def _stdout_for_ourselves() -> Iterator[None]:
    """Sends what Spark and its processes print to standard error: standard output is for the answer."""
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)
