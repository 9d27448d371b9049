"""The Spark SQL of an epoch's one pass over its rows: the columns that all synopses and row stores need."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from headrace.kernels.absorb import BUCKETS, GREATEST, LEAST, MOST, SEED, EpochColumns, FeedColumns, RowColumns
from headrace.kernels.panes import layout_of
from headrace.model import SCALING, Feed, Measure, Stream, edge_into
from headrace.planning import Kept, RowFeed, RowStore, merged_columns

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
) -> EpochColumns:
    """The columns all synopses and row stores need of some streams, each distinct expression once.

    An expression is evaluated for rows that are admitted, that pass the query's filter and that some edge may keep, no
    others: it could fail, and it takes time that rows which are shed must not take. The bounds of admission come as
    array literals indexed by stream, which keeps the text of the generated code, and so its compiled form, the same
    from epoch to epoch. `hashed` has the columns that rows are shed by, by stream; `protected` by edge the number of
    the key whose buckets are told apart.
    """
    select = _Select(streams, hashed or {})
    feeds = tuple(
        (
            layout_of(k.synopsis, k.measures, k.pane_us),
            tuple(
                select.feed(k, i, source, bins, (protected or {}).get(edge_into(k.synopsis.id, source.stream)))
                for i, source in enumerate(k.synopsis.feeds)
                if source.stream in select.position
            ),
        )
        for k in kept
    )
    hashes = tuple(select.hash_of(stream) for stream in streams)
    rows = tuple((s.id, tuple(select.rows(f) for f in s.feeds if f.stream in select.position)) for s in stores)
    names = tuple(stream.name for stream in streams)
    return EpochColumns(select.texts(corrupt), feeds, names, bool(corrupt), rows, hashes)


class _Select:
    """Collects the columns of one SELECT over some streams."""

    def __init__(self, streams: Sequence[Stream], hashed: Mapping[str, tuple[str, ...]]) -> None:
        self.position = {stream.name: i for i, stream in enumerate(streams)}
        times = [f"unix_micros({stream.name}.`{stream.time}`)" for stream in streams]
        cases = " ".join(f"WHEN {i} THEN {time}" for i, time in enumerate(times))
        self._time = times[0] if len(times) == 1 else f"CASE _s {cases} END"
        self._admitted = f"({self._time} BETWEEN {LEAST}[_s] AND {GREATEST}[_s])"
        self._hash = {stream.name: self._hashed(stream, hashed) for stream in streams if stream.name in hashed}
        self._names: dict[str, str] = {}  # by expression

    def feed(self, kept: Kept, number: int, source: Feed, bins: int, rare: int | None) -> FeedColumns:
        """The columns of a synopsis's feed of that number; `rare` is the number of the key whose buckets are told."""
        if source.panes is not None:
            return self._panes(kept, number, source, bins)
        own, passed, kept_by_some = self._guards(source)
        keyed = bins > 1 and kept.synopsis.keys
        return FeedColumns(
            self.position[source.stream],
            self._column(source.where, own) if source.where else None,
            tuple(self._column(sql, kept_by_some) for sql in source.keys),
            self._column(source.detail, kept_by_some) if source.detail else None,
            tuple(self._argument(measure, number, kept_by_some) for measure in kept.measures),
            self._bucket(", ".join(source.keys), bins, kept_by_some) if keyed else None,
            # Buckets are counted of all rows.
            None if rare is None else self._bucket(source.keys[rare], BUCKETS, passed),
        )

    def _panes(self, kept: Kept, number: int, source: Feed, bins: int) -> FeedColumns:
        """The columns of a feed whose rows are panes; only those that are its own are looked at."""
        panes = f"{source.stream}.`{source.panes}`"
        here = Feed(source.stream, f"{panes} IS NOT NULL", (), None)
        own, passed, _ = self._guards(here)
        keys = tuple(f"{panes}.`k{i}`" for i in range(len(source.keys)))
        merged = (sql for measure in kept.measures for sql in merged_columns(measure, number, source))
        return FeedColumns(
            self.position[source.stream],
            self._column(f"{panes} IS NOT NULL", own),
            tuple(self._column(sql, passed) for sql in keys),
            self._column(f"{panes}.`d`", passed) if source.detail else None,
            (),
            self._bucket(", ".join(keys), bins, passed) if bins > 1 and keys else None,
            merged=tuple(self._column(sql, passed) for sql in merged),
        )

    def rows(self, source: RowFeed) -> RowColumns:
        """The columns of a row store's feed."""
        own, _, kept_by_some = self._guards(source)
        return RowColumns(
            self.position[source.stream],
            self._column(source.where, own) if source.where else None,
            tuple(self._column(sql, kept_by_some) for sql in source.columns),
            self._column(f"xxhash64({', '.join(source.keys)})", kept_by_some) if source.keys else None,
        )

    def hash_of(self, stream: Stream) -> str | None:
        """The column that rows of a stream are shed by, if they are."""
        return self._column(self._hash[stream.name], None) if stream.name in self._hash else None

    def _hashed(self, stream: Stream, hashed: Mapping[str, tuple[str, ...]]) -> str:
        fields = ", ".join(f"{stream.name}.`{name}`" for name in hashed[stream.name])
        return f"xxhash64({fields}, {SEED}[{self.position[stream.name]}])"

    def texts(self, corrupt: frozenset[str]) -> tuple[str, ...]:
        """The SELECT list: time, number of the stream, whether the row is unparseable, and what was collected."""
        select = [f"{self._time} AS _t"]
        if len(self.position) > 1:
            select.append("_s")
        if corrupt:
            bad = " OR ".join(f"{name}._corrupt_record IS NOT NULL" for name in sorted(corrupt))
            select.append(f"COALESCE({bad}, false) AS _bad")
        return (*select, *(f"{sql} AS {name}" for sql, name in self._names.items()))

    def _guards(self, source: Feed | RowFeed) -> tuple[str, str, str]:
        """What holds for admitted rows of the source's stream, for those of them that pass its filter, and for those
        of these that some edge may keep."""
        several, number = len(self.position) > 1, self.position[source.stream]
        own = f"_s = {number} AND {self._admitted}" if several else self._admitted
        hashed = self._hash.get(source.stream)
        may_be_kept = own if hashed is None else f"{own} AND {hashed} <= {MOST}[{number}]"
        where = f" AND ({source.where})" if source.where else ""
        return own, own + where, may_be_kept + where

    def _argument(self, measure: Measure, number: int, guard: str) -> str | None:
        name = None if measure.arguments is None else self._column(measure.arguments[number], guard)
        return f"{measure.kind}:{name or ''}" if measure.kind in SCALING else name

    def _bucket(self, keys: str, buckets: int, guard: str) -> str:
        return self._column(f"CAST(pmod(xxhash64({keys}), {buckets}) AS INT)", guard)

    def _column(self, sql: str, guard: str | None) -> str:
        if guard is not None and not _PLAIN_COLUMN.fullmatch(sql):
            sql = f"CASE WHEN {guard} THEN {sql} END"
        return self._names.setdefault(sql, f"x{len(self._names)}")


def text_literal(name: str) -> str:
    """A name as a string of Spark SQL."""
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
