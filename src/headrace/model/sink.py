"""Where results go, and what one column of them is."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.model.types import DataType

__all__ = ["Output", "SinkSpec"]


@dataclass(frozen=True, slots=True)
class Output:
    """A result column: Spark SQL over the root operator's columns, and over window_start and window_end."""

    name: str
    sql: str
    type: DataType


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """Where results go: any Spark batch format, or one of our own (console, memory, python).

    Files are laid out in folders by the columns of `partition_by`. With a `key` a table keeps one result of each: that
    with the greatest value in `latest`, of equals the newest.
    """

    format: str = "parquet"
    path: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    latest: str | None = None
