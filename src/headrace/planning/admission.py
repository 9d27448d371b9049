"""What the fractions that operators want on their edges mean for streams: one hash per stream and epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.model import (
    PLACE,
    Admission,
    Column,
    DataType,
    Join,
    Kind,
    Lookup,
    Operator,
    Query,
    Results,
    RowsAggregate,
    Scan,
    Step,
    Stream,
    Union,
    WindowAggregate,
)

__all__ = ["columns_in_use", "plan_admissions"]


def plan_admissions(
    streams: Iterable[Stream],
    used: Mapping[str, frozenset[str]],
    keep: Mapping[str, float],
    seed: int,
    buckets: Mapping[str, tuple[float, ...]] | None = None,
    keyed: Mapping[str, float] | None = None,
) -> dict[str, Admission]:
    """By stream how its edges shed, given the fraction of each edge; streams that keep everything have no entry.

    A message is hashed by its position, so that equal rows part; other rows by their time and the columns in `used`.
    Edges that are `keyed` are hashed by the key of the join that they lead into.
    """
    admissions: dict[str, Admission] = {}
    for stream in streams:
        mine, by_key = _edges_of(stream, keep), _edges_of(stream, keyed or {})
        if mine or by_key:
            parts = {edge: part for edge, part in (buckets or {}).items() if edge in mine}
            hashed = _hashed(stream, used.get(stream.name)) if mine else ()
            admissions[stream.name] = Admission(hashed, seed, mine, parts, by_key)
    return admissions


def _edges_of(stream: Stream, keep: Mapping[str, float]) -> dict[str, float]:
    return {edge: part for edge, part in keep.items() if edge.partition(">")[0] == stream.name and part < 1}


def _hashed(stream: Stream, used: frozenset[str] | None) -> tuple[str, ...]:
    unfolds = stream.select is not None and stream.select.unfolding is not None
    if stream.source is not None and stream.source.value is not None and not unfolds:
        return PLACE
    names = [c.name for c in stream.columns if (used is None or c.name in used) and _hashable(c.type)]
    return tuple(dict.fromkeys((stream.time, *names)))


def _hashable(type_: DataType) -> bool:
    """Spark hashes everything but maps and values whose type is unknown here."""
    return type_.kind not in (Kind.MAP, Kind.UNKNOWN) and all(_hashable(field.type) for field in type_.fields)


def columns_in_use(queries: Sequence[Query], streams: Sequence[Stream]) -> dict[str, frozenset[str]]:
    """Per stream the columns that some query reads."""
    reads = {read for query in queries for read in _reads(query.root)}

    def used(stream: Stream) -> Iterable[Column]:
        own = (column for column in stream.columns if f"{stream.name}.{column.name}" in reads)
        return stream.pane_columns if stream.as_panes else own

    return {stream.name: frozenset(column.name for column in used(stream)) for stream in streams}


def _reads(operator: Operator) -> set[str]:
    match operator:
        case Scan(of=Results(root=root)):
            return _reads(root)
        case Scan(columns=columns, where=where):
            return {read for e in (*columns, *((where,) if where else ())) for read in e.reads}
        case Union(inputs=inputs):
            return {read for child in inputs for read in _reads(child)}
        case Join(left=left, right=right):
            return _reads(left.input) | _reads(right.input)
        case WindowAggregate(input=child) | RowsAggregate(input=child) | Step(input=child) | Lookup(input=child):
            return _reads(child)
