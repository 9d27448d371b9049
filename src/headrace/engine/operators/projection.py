"""The Spark SQL of an epoch's one pass over its rows: the columns that all synopses and row stores need."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headrace.kernels.absorb import BUCKETS, GREATEST, LEAST, SEED, FeedColumns, Projection, RowColumns
from headrace.kernels.panes import layout_of
from headrace.model import SCALING, Feed, Measure, Stream, edge_into
from headrace.planning import Kept, RowFeed, RowStore

__all__ = ["projection", "text_literal"]

_PLAIN_COLUMN = re.compile(r"`?\w+`?\.`?\w+`?")


def projection(
    streams: Sequence[Stream],
    kept: Sequence[Kept],
    bins: int,
    corrupt: frozenset[str] = frozenset(),
    stores: Sequence[RowStore] = (),
    hashed: Mapping[str, tuple[str, ...]] | None = None,
    protected: Mapping[str, int] | None = None,
) -> Projection:
    """The columns all synopses and row stores need of some streams, each distinct expression once.

    An expression that could fail is evaluated for rows that are admitted and pass the query's filter, no others. The
    bounds of admission come as array literals indexed by stream, which keeps the text of the generated code, and so
    its compiled form, the same from epoch to epoch. `hashed` has the columns that rows are shed by, by stream;
    `protected` by edge the number of the key whose buckets are told apart.
    """
    position = {stream.name: i for i, stream in enumerate(streams)}
    time = " ".join(f"WHEN {i} THEN unix_micros({s.name}.`{s.time}`)" for i, s in enumerate(streams))
    time = f"unix_micros({streams[0].name}.`{streams[0].time}`)" if len(streams) == 1 else f"CASE _s {time} END"
    admitted = f"({time} BETWEEN {LEAST}[_s] AND {GREATEST}[_s])"
    columns: dict[str, str] = {}

    def column(sql: str, guard: str | None) -> str:
        if guard is not None and not _PLAIN_COLUMN.fullmatch(sql):
            sql = f"CASE WHEN {guard} THEN {sql} END"
        return columns.setdefault(sql, f"x{len(columns)}")

    def guards(source: Feed | RowFeed) -> tuple[str, str]:
        own = f"_s = {position[source.stream]} AND {admitted}" if len(streams) > 1 else admitted
        return own, f"{own} AND ({source.where})" if source.where else own

    def row_feed(source: RowFeed) -> RowColumns:
        own, passed = guards(source)
        return RowColumns(
            position[source.stream],
            column(source.where, own) if source.where else None,
            tuple(column(sql, passed) for sql in source.columns),
            column(f"xxhash64({', '.join(source.keys)})", passed) if source.keys else None,
        )

    def argument(measure: Measure, i: int, passed: str) -> str | None:
        name = None if measure.arguments is None else column(measure.arguments[i], passed)
        return f"{measure.kind}:{name or ''}" if measure.kind in SCALING else name

    def feed(kept: Kept, i: int, source: Feed) -> FeedColumns:
        own, passed = guards(source)
        keyed = bins > 1 and kept.synopsis.keys
        rare = (protected or {}).get(edge_into(kept.synopsis.id, source.stream))
        return FeedColumns(
            position[source.stream],
            column(source.where, own) if source.where else None,
            tuple(column(sql, passed) for sql in source.keys),
            column(source.detail, passed) if source.detail else None,
            tuple(argument(m, i, passed) for m in kept.measures),
            column(f"CAST(pmod(xxhash64({', '.join(source.keys)}), {bins}) AS INT)", passed) if keyed else None,
            None if rare is None else column(f"CAST(pmod(xxhash64({source.keys[rare]}), {BUCKETS}) AS INT)", passed),
        )

    feeds = tuple(
        (
            layout_of(k.synopsis, k.measures, k.pane_us),
            tuple(feed(k, i, source) for i, source in enumerate(k.synopsis.feeds) if source.stream in position),
        )
        for k in kept
    )

    def hash_of(i: int, stream: Stream) -> str | None:
        names = (hashed or {}).get(stream.name)
        if names is None:
            return None
        fields = ", ".join(f"{stream.name}.`{name}`" for name in names)
        return column(f"xxhash64({fields}, {SEED}[{i}])", None)

    hashes = tuple(hash_of(i, stream) for i, stream in enumerate(streams))
    rows = tuple((s.id, tuple(row_feed(f) for f in s.feeds if f.stream in position)) for s in stores)
    select = [f"{time} AS _t"]
    if len(streams) > 1:
        select.append("_s")
    if corrupt:
        bad = " OR ".join(f"{name}._corrupt_record IS NOT NULL" for name in sorted(corrupt))
        select.append(f"COALESCE({bad}, false) AS _bad")
    select += [f"{sql} AS {name}" for sql, name in columns.items()]
    return Projection(tuple(select), feeds, tuple(s.name for s in streams), bool(corrupt), rows, hashes)


def text_literal(name: str) -> str:
    """A name as a string of Spark SQL."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
