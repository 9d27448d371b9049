"""Tells SQL that this package wrote from SQL that somebody put into a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.language.sql.emit import emit
from headrace.language.sql.infer import infer
from headrace.language.sql.names import Scope, bind_names
from headrace.language.sql.reading import read_text
from headrace.language.sql.report import Fault
from headrace.model import Stream

__all__ = ["is_own_text"]


def is_own_text(sql: str, streams: Iterable[Stream]) -> bool:
    """Whether an expression over declared streams is word for word what the last gate before Spark would write.

    >>> from headrace.language.ddl import parse_schema
    >>> packets = Stream("packets", parse_schema("ts TIMESTAMP, src STRING"), time="ts")
    >>> [is_own_text(sql, [packets]) for sql in ("UPPER(packets.src)", "upper(packets.src)", "reflect('a', 'b')")]
    [True, False, False]
    """
    columns = {(stream.name, column.name): column.type for stream in streams for column in stream.columns}
    try:
        bound = bind_names(read_text(sql), Scope(columns))
        infer(bound, columns)
        return emit(bound, columns) == sql
    except (Fault, ValueError, RecursionError):
        return False
