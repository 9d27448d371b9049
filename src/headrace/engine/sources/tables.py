"""Tables that rows are looked up in: read by Spark, copied into the checkpoint, and read from there by epochs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.engine.failures import failure_of
from headrace.engine.spark.secrets import resolve
from headrace.engine.spark.thrown import chain_of
from headrace.engine.state.storage import Storage, for_spark
from headrace.errors import CorruptStateError, EngineError, HeadraceError
from headrace.language import nearest, parse_type
from headrace.model import CATALOG, Column, Snapshot, Table, shown
from headrace.units import format_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Tables", "read_table"]

# Formats that take the names of columns from who reads them, and what they are to do with what does not fit.
_TEXTS = {"csv": {"mode": "FAILFAST", "enforceSchema": "false"}, "json": {"mode": "FAILFAST"},
          "xml": {"mode": "FAILFAST"}}  # fmt: skip
# Spark sends tables up to this size to every task; as large a one stays in memory between two refreshes.
_SMALL_BYTES = 10 << 20


class Tables:
    """The tables of a pipeline by name. `frames` are those that the caller brings.

    Snapshots that are small stay in Spark's memory until the next one is used.
    """

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        tables: Iterable[Table],
        frames: Mapping[str, DataFrame] | None = None,
    ) -> None:
        self._spark, self._storage, self._frames = spark, storage, dict(frames or {})
        self.known = {table.name: table for table in tables}
        self._open: dict[str, tuple[Snapshot, DataFrame]] = {}

    def can_read(self, name: str) -> bool:
        """Whether a table may be read here: not in the replay of an epoch, which has its snapshots."""
        return name in self._frames or self.known[name].source is not None

    def read(self, name: str) -> DataFrame:
        """The table as Spark reads it now, nothing evaluated; EngineError if it is not there or not as declared."""
        return read_table(self._spark, self.known[name], self._frames.get(name))

    def take(self, name: str, epoch: int, now_us: int, reason: str) -> Snapshot:
        """Copies a table into the checkpoint, on disk before any decision that names it; EngineError if it cannot."""
        table, rows = self.known[name], self.read(name)
        folder = f"{epoch:09d}_{uuid.uuid4().hex}"
        place = f"tables/{name}/{folder}"
        try:
            rows.write.parquet(for_spark(f"{self._storage.root}/{place}"))
            count = self._files(place, table.columns).count()
        except Exception as failure:
            self._storage.delete(place)
            raise EngineError(f"table '{name}' cannot be read: {_why(failure)}") from failure
        size = self._size(place)
        if size > table.limit_bytes:
            self._storage.delete(place)
            raise EngineError(
                f"table '{name}' has {format_bytes(size)} as Parquet, more than its limit of "
                f"{format_bytes(table.limit_bytes)}; raise its limit:, or read fewer rows or columns of it"
            )
        files = (f"{place}/{file}" for file in self._storage.names(place))
        self._storage.persist(["tables", f"tables/{name}", place, *files])
        return Snapshot(folder, table.definition, now_us, count, size, reason)

    def look(self, name: str, snapshot: Snapshot) -> DataFrame:
        """The rows of a snapshot; CorruptStateError if its files are not what they were."""
        known = self._open.get(name)
        if known is not None and known[0].folder == snapshot.folder:
            return known[1]
        place = f"tables/{name}/{snapshot.folder}"
        if (size := self._size(place)) != snapshot.bytes:
            raise CorruptStateError(
                f"{self._storage.root}/{place} has {size} bytes, and the snapshot of table '{name}' had "
                f"{snapshot.bytes}; restore the whole checkpoint, or start with a new one"
            )
        rows = self._files(place, self.known[name].columns)
        if snapshot.bytes <= _SMALL_BYTES:
            rows = rows.persist()
        if known is not None:
            known[1].unpersist()
        self._open[name] = snapshot, rows
        return rows

    def forget(self, names: frozenset[str]) -> None:
        """Frees what Spark has in memory of other tables than these."""
        for name in self._open.keys() - names:
            self._open.pop(name)[1].unpersist()

    def close(self) -> None:
        """Frees all that Spark has in memory of tables."""
        self.forget(frozenset())

    def _files(self, place: str, columns: tuple[Column, ...]) -> DataFrame:
        return self._spark.read.schema(_ddl(columns)).parquet(for_spark(f"{self._storage.root}/{place}"))

    def _size(self, place: str) -> int:
        files = (name for name in self._storage.names(place) if name.endswith(".parquet"))
        return sum(self._storage.size(f"{place}/{name}") or 0 for name in files)


def read_table(spark: SparkSession, table: Table, frame: DataFrame | None = None) -> DataFrame:
    """A table's declared columns as Spark reads them now, or as they are in `frame`; EngineError if they are not."""
    try:
        rows = _opened(spark, table) if frame is None else frame
        found = {f.name.lower(): Column(f.name, parse_type(f.dataType.simpleString())) for f in rows.schema.fields}
    except HeadraceError:
        raise
    except Exception as failure:
        raise EngineError(f"table '{table.name}' cannot be read: {_why(failure)}") from failure
    for column in table.columns:
        there = found.get(column.name.lower())
        if there is None:
            raise _missing(table, column, [each.name for each in found.values()])
        if there.type != column.type and column.type.is_known:
            raise EngineError(
                f"column '{column.name}' of table '{table.name}' is {there.type}, and was declared {column.type}; "
                "declare it as it is, or read a view that casts it"
            )
    return rows.selectExpr(*(f"`{column.name}`" for column in table.columns))


def _opened(spark: SparkSession, table: Table) -> DataFrame:
    source = table.source
    assert source is not None
    if source.format == CATALOG:
        # What Spark has cached of the table's files may be from before they changed.
        spark.catalog.refreshTable(source.path or "")
        return spark.read.table(source.path or "")
    options = resolve(source.options, f"table '{table.name}'")
    given = {key.lower() for key in options}
    reader = spark.read.format(source.format).options(**options)
    if source.format not in _TEXTS:
        return reader.load(source.path) if source.path is not None else reader.load()
    if source.format == "json":
        # A field that no line has would be NULL to Spark.
        names = [field.name for field in reader.load(source.path).schema.fields]
        lost = next((c for c in table.columns if c.name.lower() not in (name.lower() for name in names)), None)
        if lost is not None:
            raise _missing(table, lost, names)
    strict = {key: text for key, text in _TEXTS[source.format].items() if key.lower() not in given}
    return reader.options(**strict).schema(_ddl(table.columns)).load(source.path)


def _why(failure: Exception) -> str:
    """What Spark says of a table that it cannot read, and what was behind that."""
    told, chain = failure_of(failure).text, chain_of(failure)
    behind = " ".join(chain[-1].message.split()) if chain else ""
    return shown(told if not behind or behind in told else f"{told}: {behind}")


def _missing(table: Table, column: Column, names: Sequence[str]) -> EngineError:
    return EngineError(f"table '{table.name}' has no column '{column.name}'; {nearest(column.name, names)}")


def _ddl(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"`{column.name}` {column.type}" for column in columns)
