"""Which of a stream's admitted rows its edges keep: by a hash of the row, by buckets, or by the key of a join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from headrace.model import Shed, threshold

__all__ = ["Passed"]


class Passed:
    """The admitted rows of a slab by stream, and those of them that go along an edge."""

    def __init__(
        self,
        admitted: tuple[pl.DataFrame, ...],
        hashes: Sequence[str | None],
        keep: Mapping[str, float],
        bucketed: Mapping[str, tuple[str, tuple[float, ...]]] | None = None,
        by_key: Mapping[str, tuple[str, float]] | None = None,
    ) -> None:
        self._admitted, self._hashes, self._keep, self._bucketed = admitted, hashes, keep, bucketed or {}
        self._by_key = by_key or {}
        self._along: dict[tuple[int, str | None, float | str], pl.DataFrame] = {}

    def along(self, stream: int, where: str | None, edge: str) -> pl.DataFrame:
        """The rows of a stream that pass a filter and are kept by an edge."""
        own = edge in self._bucketed or edge in self._by_key
        key = stream, where, edge if own else self._keep.get(edge, 1.0)
        if key not in self._along:
            rows = self._admitted[stream]
            if where is not None:
                rows = rows.filter(pl.col(where))
            if edge in self._keep or edge in self._by_key:
                rows = rows.filter(self._kept(stream, edge))
            self._along[key] = rows
        return self._along[key]

    def hash_of(self, stream: int) -> str | None:
        """The column that a stream's rows are shed by, if there is one."""
        return self._hashes[stream] if self._hashes else None

    def offered(self, stream: int, where: str | None) -> pl.DataFrame:
        """The rows of a stream that pass a filter, kept or not."""
        rows = self._admitted[stream]
        return rows if where is None else rows.filter(pl.col(where))

    def account(self, stream: int, wheres: Mapping[str, set[str | None]]) -> tuple[dict[str, Shed], int]:
        """The accounts of edges, given the filters before them; and how many rows some edge left out."""
        rows = self._admitted[stream]
        carried = {
            edge: pl.any_horizontal([pl.lit(True) if w is None else pl.col(w).fill_null(False) for w in filters])
            for edge, filters in wheres.items()
        }
        lost = {edge: carried[edge] & ~self._kept(stream, edge) for edge in wheres}
        found = rows.select(
            *(carried[edge].sum().alias(f"in {edge}") for edge in wheres),
            *(lost[edge].sum().alias(f"shed {edge}") for edge in wheres),
            pl.any_horizontal(*lost.values()).sum().alias("any"),
        ).row(0, named=True)
        # A literal is one value however many rows there are.
        came = {e: rows.height if None in wheres[e] else found[f"in {e}"] for e in wheres}
        return {edge: Shed(came[edge], found[f"shed {edge}"]) for edge in wheres}, found["any"]

    def _kept(self, stream: int, edge: str) -> pl.Expr:
        if edge not in self._by_key:
            return self._kept_by_row(stream, edge)
        column, part = self._by_key[edge]
        by_key = pl.col(column) < threshold(part)
        return by_key & self._kept_by_row(stream, edge) if edge in self._keep else by_key

    def _kept_by_row(self, stream: int, edge: str) -> pl.Expr:
        name = self._hashes[stream]
        assert name is not None, f"edge '{edge}' sheds, and its stream has no hash"
        if edge not in self._bucketed:
            return pl.col(name) < threshold(self._keep[edge])
        bucket, parts = self._bucketed[edge]
        # No hash is greater than the greatest, which a bucket that keeps everything must not lose.
        most = [min(threshold(part), 2**63 - 1) for part in parts]
        whole = pl.col(bucket).is_in([i for i, part in enumerate(parts) if part >= 1])
        return whole | (pl.col(name) < pl.col(bucket).replace_strict(list(range(len(most))), most, default=None))

    def fraction(self, edge: str) -> float | pl.Expr | None:
        """The fraction of its rows that an edge keeps, of each row's bucket where it has several; None: everything."""
        if edge not in self._bucketed:
            return self._keep.get(edge)
        bucket, parts = self._bucketed[edge]
        return pl.col(bucket).replace_strict(list(range(len(parts))), list(parts), return_dtype=pl.Float64)
