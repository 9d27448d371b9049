"""A stream that is selected differently than before: what goes on, and what would mix rows of two kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from headrace.engine.state.checkpoint import QueryState
from headrace.errors import SpecError, StateError
from headrace.language import bind_query, quoted
from headrace.model import Stream, Table, streams_of
from headrace.planning import columns_in_use

__all__ = ["refuse_mixed_rows"]


def refuse_mixed_rows(
    before: Sequence[Stream],
    now: Sequence[Stream],
    known: Mapping[str, QueryState],
    tables: Sequence[Table],
    note: Callable[[str], None],
) -> None:
    """StateError if what queries of the checkpoint keep is of columns, or rows, that are now selected differently.

    Columns that come, go or change and that no such query reads are another matter: those go on.
    """
    was = {stream.name: stream for stream in before}
    for stream in now:
        then = was.get(stream.name)
        if then is None or then.select == stream.select:
            continue
        changed, rows = _changed(then, stream)
        reads = {name: _read(name, state, then, before, tables) for name, state in known.items()}
        readers = {name: read & changed for name, read in reads.items() if read and (rows or read & changed)}
        if readers:
            columns = sorted({f"'{column}'" for read in readers.values() for column in read})
            what = f"column {', '.join(columns)}" if columns else "WHERE or explode"
            raise StateError(
                f"the select of stream '{stream.name}' has changed in {what}, and what was kept for "
                f"{_queries(readers)} is of rows as they were: put it back; give a new column a name of its own; take "
                "these queries out, start once, and edit it then; or begin with a new checkpoint"
            )
        note(
            f"stream '{stream.name}' is selected differently from now on; nothing that queries keep is of what changed"
        )


def _changed(then: Stream, now: Stream) -> tuple[set[str], bool]:
    """The columns that had another definition, and whether a source's row gives other rows."""
    old, new = _definitions(then), _definitions(now)
    rows = (then.select.rows if then.select else (None, None)) != (now.select.rows if now.select else (None, None))
    return {name for name in old if new.get(name) != old[name]}, rows


def _definitions(stream: Stream) -> dict[str, str]:
    if stream.select is not None:
        return stream.select.definitions
    # A column that was the source's own is the same when a select names it.
    return {column.name: f"{stream.name}.{quoted(column.name)} {column.type}" for column in stream.columns}


def _read(name: str, state: QueryState, then: Stream, before: Sequence[Stream], tables: Sequence[Table]) -> set[str]:
    """The columns of a stream that a query reads, its time among them; none if it does not read it, or is over."""
    if state.ended:
        return set()
    try:
        query = bind_query(name, state.sql, {s.name: s for s in before}, tables={t.name: t for t in tables})
    except SpecError:
        return {column.name for column in then.columns}  # a function's, say: it may read everything
    if then.name not in streams_of(query.root):
        return set()
    return set(columns_in_use([query], [then])[then.name]) | {then.time}


def _queries(names: Mapping[str, object]) -> str:
    shown = ", ".join(f"'{name}'" for name in names)
    return f"{'query' if len(names) == 1 else 'queries'} {shown}"
