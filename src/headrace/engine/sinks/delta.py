"""Results in a Delta table: an epoch is one version of it, with the query and epoch as its transaction.

Tasks or Spark write an epoch's files, as they do for Parquet; the driver commits their names, through the `deltalake`
package, together with which epoch they are. An epoch that is given again finds itself there and is passed over. Files
that no commit names are garbage, as everywhere in Delta.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

from headrace.engine.sinks.files import STAGING, FileSink, partition_of
from headrace.engine.sinks.latest import merged
from headrace.engine.sinks.sink import had_before
from headrace.engine.spark.secrets import resolve
from headrace.engine.state.storage import Storage, for_spark
from headrace.errors import EngineError, EnvironmentProblem, HeadraceError, SpecError
from headrace.language import NEEDS_DELTALAKE
from headrace.model import Shape, SinkSpec, why_another

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame

__all__ = ["DeltaSink"]

# A new table's log: a checkpoint every so many versions, and versions for as long as a reader may lag behind. A commit
# lists the log, which takes 60 ms with an hour's versions at one a second, and 1.4 s with a day's (measured).
_PROPERTIES = {"delta.checkpointInterval": "100", "delta.logRetentionDuration": "interval 1 hours"}
# Every epoch rewrites a table that keeps one result of each key: what it was before need not stay as long.
_REWRITTEN = {"delta.deletedFileRetentionDuration": "interval 1 hours"}
# Files that no version names go so often, in versions.
_VACUUM_EVERY = 100
# Forgetting transactions would be forgetting which epochs are there.
_FORGETS = "delta.setTransactionRetentionDuration"
# Options for `deltalake` itself: how to reach a store, such as storage.aws_region.
_STORAGE = "storage."
# Spark's name of the folder for rows without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# Types that a table of the least versions of the protocol can have.
_TYPES = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
     "decimal", "array", "map", "struct"}
)  # fmt: skip


class DeltaSink(FileSink):
    """Appends to a Delta table, an epoch per version; `columns` are the results' as Spark DDL.

    With a key a version takes the place of the one before it, and has the latest result of each key.

    Options `delta.*` are properties of the table if it is made here, options `storage.*` say how `deltalake` reaches
    it, all others go to the writer of files.
    """

    def __init__(self, spec: SinkSpec, columns: str, storage: Storage, application: str) -> None:
        options = resolve(spec.options, f"the Delta table {storage.root}")
        files = {key: text for key, text in options.items() if not key.startswith(("delta.", _STORAGE))}
        super().__init__(replace(spec, format="parquet", options=tuple(files.items())), storage)
        self._latest = spec.latest
        self.application = application
        number = sha256(application.encode()).hexdigest()[:12]
        # Readers and VACUUM pass over names that begin so.
        self._note = f"_headrace-{number}"
        self._schema = _delta_schema(columns)
        given = {key: text for key, text in options.items() if key.startswith("delta.")}
        self._properties = {**_PROPERTIES, **(_REWRITTEN if spec.key else {}), **given}
        self._access = {k.removeprefix(_STORAGE): text for k, text in options.items() if k.startswith(_STORAGE)}
        if _FORGETS in self._properties:
            raise SpecError(f"a Delta table that forgets transactions ({_FORGETS}) cannot tell which epochs it has had")
        # Several pipelines may append to one table, each with files of its own on their way.
        self.staged = f"{STAGING}/{number}"
        storage.delete(self.staged)
        self._table: DeltaTable | None = None
        try:
            self._refresh()
        except EnvironmentProblem:
            raise
        except EngineError as problem:
            raise EnvironmentProblem(
                f"{problem}; deltalake takes access from its own environment variables or options named {_STORAGE}*"
            ) from problem
        except HeadraceError as problem:
            raise SpecError(str(problem)) from problem

    def claim(self) -> None:
        """Notes that a pipeline has named this table for the query, before any of its results are there."""
        if not self.is_claimed():
            self.storage.make_folder("")
            self.storage.replace(self._note, self.application.encode())

    def is_claimed(self) -> bool:
        """Whether the query of this checkpoint was given the table before, by a pipeline and not by a checkpoint."""
        return self.last_epoch() >= 0 or self.storage.size(self._note) is not None

    def last_epoch(self) -> int:
        found = None if self._table is None else self._table.transaction_version(self.application)
        return -1 if found is None else found

    def adopt(self, files: list[str], epoch: int, replay: bool) -> None:
        """Makes staged files a version of the table, unless the epoch is there."""
        self._refresh()
        if had_before(f"the Delta table {self.storage.root}", self.last_epoch(), epoch, replay):
            for file in files:
                self.storage.delete(f"{self.staged}/{file}")
        elif files:
            table = self._table or self._create()
            named = {self._named(file, epoch, i): partition_values(file) for i, file in enumerate(files)}
            self._commit(table, named, epoch)
            self._tidy(table)

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        if not self.key:
            return super().write(results, epoch, replay)
        self._refresh()
        if had_before(f"the Delta table {self.storage.root}", self.last_epoch(), epoch, replay):
            return None
        assert self._latest is not None
        uris = [] if self._table is None else self._table.file_uris()
        files = [f"{for_spark(self.storage.root)}/{uri.rpartition('/')[2]}" for uri in uris]
        return super().write(merged(results, files, self.key, self._latest), epoch, replay)

    def _named(self, file: str, epoch: int, number: int) -> str:
        """Gives a staged file a name that no other attempt has."""
        suffix = file.rpartition("/")[2].partition(".")[2]
        name = f"epoch-{epoch:09d}-{number:03d}-{uuid4().hex}.{suffix}"
        self.storage.move(f"{self.staged}/{file}", name)
        return name

    def _create(self) -> DeltaTable:
        from deltalake import DeltaTable, Schema

        with self._told():
            schema = Schema.from_json(self._schema)
            DeltaTable.create(
                self.storage.root, schema, mode="ignore", configuration=self._properties,
                partition_by=list(self.partition_by) or None, storage_options=self._access or None,
            )  # fmt: skip
        self._refresh()
        assert self._table is not None
        return self._table

    def _commit(self, table: DeltaTable, files: Mapping[str, Mapping[str, str | None]], epoch: int) -> None:
        """Appending has no conflicts, so `deltalake` tries again where another writer was faster; a version that takes
        the place of all before it fails.

        Checkpoints of the log, and its clean-up, come with the commits, as the table's properties have it.
        """
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.transaction import AddAction

        now_ms = time.time_ns() // 1_000_000
        sizes = {file: self.storage.size(file) or 0 for file in files}
        with self._told():
            table.create_write_transaction(
                [AddAction(file, size, dict(files[file]), now_ms, True, "{}") for file, size in sizes.items()],
                "overwrite" if self.key else "append",
                Schema.from_json(self._schema),
                list(self.partition_by) or None,
                commit_properties=CommitProperties(app_transactions=[Transaction(self.application, epoch, now_ms)]),
            )

    def _tidy(self, table: DeltaTable) -> None:
        """Removes, now and then, files that versions before have rewritten, and nobody may still read."""
        if self.key and (table.version() + 1) % _VACUUM_EVERY == 0:
            with self._told():
                table.vacuum(dry_run=False, enforce_retention_duration=False)

    def _refresh(self) -> None:
        """Reads what has been committed since; HeadraceError if the table is not, or no longer, one for the results."""
        with self._told():
            if self._table is None:
                self._table = self._open()
            else:
                self._table.update_incremental()
        if self._table is not None:
            self._check(self._table)

    def _open(self) -> DeltaTable | None:
        try:
            from deltalake import DeltaTable
            from deltalake.exceptions import TableNotFoundError
        except ImportError as exc:
            raise EnvironmentProblem(NEEDS_DELTALAKE) from exc
        try:
            return DeltaTable(self.storage.root, storage_options=self._access or None)
        except TableNotFoundError as exc:
            if "Unknown scheme" in str(exc):
                raise EngineError(f"the package deltalake cannot reach {self.storage.root}: {_first(exc)}") from exc
            return None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What goes wrong with a table stops the run: nothing of the epoch is there, or all of it, and it goes on."""
        try:
            yield
        except HeadraceError:
            raise
        except Exception as failure:
            raise EngineError(
                f"the Delta table {self.storage.root} cannot be read or written: {_first(failure)}"
            ) from (failure)

    def _check(self, table: DeltaTable) -> None:
        protocol, metadata = table.protocol(), table.metadata()
        needed, schema = (protocol.min_reader_version, protocol.min_writer_version), table.schema().to_json()
        problem = None
        if needed[0] > 1 or needed[1] > 2 or "delta.invariants" in schema:
            problem = f"uses features (reader {needed[0]}, writer {needed[1]}) that Headrace does not write"
        elif tuple(metadata.partition_columns) != self.partition_by:
            had = ", ".join(metadata.partition_columns) or "nothing"
            problem = f"is partitioned by {had}, and its sink by {', '.join(self.partition_by) or 'nothing'}"
        elif _FORGETS in metadata.configuration:
            problem = f"forgets transactions ({_FORGETS}), and so which epochs it has had"
        elif '"nullable":false' in json.dumps(json.loads(schema), separators=(",", ":")):
            problem = "has columns that are NOT NULL, results may be NULL"
        else:
            why = why_another(_columns(schema), _columns(self._schema))
            problem = None if why is None else f"has other columns than the results: {why}"
        if problem is not None:
            remedy = "give the query a table of its own, or select the columns it has"
            raise HeadraceError(f"the Delta table {self.storage.root} {problem}; {remedy}")


def partition_values(file: str) -> dict[str, str | None]:
    """The values in the folders of a staged file, as Delta writes them down.

    >>> partition_values("4f/day=2024-01-01/k=a%2Fb/part-0.parquet")
    {'day': '2024-01-01', 'k': 'a/b'}
    >>> partition_values("4f/n=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
    {'n': None}
    """
    pairs = (part.rstrip("/").partition("=") for part in partition_of(file).split("/") if part)
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, _, value in pairs}


def _first(failure: Exception) -> str:
    """What `deltalake` says, in one line and without colours."""
    lines = (line.replace("\x1b[31m", "").replace("\x1b[0m", "").strip(" ↳") for line in str(failure).splitlines())
    told = [line for line in lines if line]
    return ": ".join(told[:3]) or type(failure).__name__


def _delta_schema(columns: str) -> str:
    """Delta's schema is Spark's, with everything nullable."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    for field in schema.fields:
        if not _plain(json.loads(field.dataType.json())):
            raise SpecError(f"a Delta table cannot hold column '{field.name}' of type {field.dataType.simpleString()}")
    return json.dumps(_nullable(json.loads(schema.json())))


def _plain(type_: Any) -> bool:
    """Whether a type, as Spark's JSON has it, and all within it are of those that every reader knows."""
    if isinstance(type_, dict):
        inner = [field["type"] for field in type_.get("fields", ())]
        inner += [type_[key] for key in ("elementType", "keyType", "valueType") if key in type_]
        return type_["type"] in _TYPES and all(_plain(each) for each in inner)
    return str(type_).partition("(")[0] in _TYPES


def _nullable(value: Any) -> Any:
    if isinstance(value, dict):
        loose = {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in value}
        return {key: _nullable(each) for key, each in value.items()} | loose
    return [_nullable(each) for each in value] if isinstance(value, list) else value


def _columns(schema: str) -> Shape:
    return tuple((field["name"], _type_text(field["type"])) for field in json.loads(schema)["fields"])


def _type_text(type_: Any) -> str:
    return type_ if isinstance(type_, str) else json.dumps(type_, sort_keys=True)
