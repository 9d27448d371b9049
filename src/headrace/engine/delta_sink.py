"""Results in a Delta table: an epoch is one version of it, with the query and epoch as its transaction.

Tasks or Spark write an epoch's files, as they do for Parquet; the commit that names them also says which epoch they
are, so an epoch that is given again finds itself there and is passed over. Files that no commit names are garbage, as
everywhere in Delta.
"""

from __future__ import annotations

import json
import time
from hashlib import sha256
from typing import Any
from uuid import uuid4

from headrace.engine.delta_log import ENGINE, DeltaLog
from headrace.engine.file_sink import STAGING, FileSink
from headrace.engine.storage import Storage
from headrace.errors import HeadraceError, SpecError
from headrace.model import SinkSpec

__all__ = ["DeltaSink"]

# Types that a table of the least versions of the protocol can have.
_TYPES = frozenset(
    {"string", "long", "integer", "short", "byte", "float", "double", "boolean", "binary", "date", "timestamp",
     "decimal", "array", "map", "struct"}
)  # fmt: skip


class DeltaSink(FileSink):
    """Appends to a Delta table, an epoch per version; `columns` are the results' as Spark DDL."""

    def __init__(self, spec: SinkSpec, columns: str, storage: Storage, application: str) -> None:
        super().__init__(SinkSpec("parquet", spec.path, spec.options), storage)
        self.application = application
        self._schema = _delta_schema(columns)
        self._log = DeltaLog(storage)
        # Several pipelines may append to one table, each with files of its own on their way.
        self.staged = f"{STAGING}/{sha256(application.encode()).hexdigest()[:12]}"
        storage.delete(self.staged)
        try:
            self._refresh()
        except HeadraceError as problem:
            raise SpecError(str(problem)) from problem

    def adopt(self, files: list[str], epoch: int, replay: bool) -> None:
        """Makes staged files a version of the table, unless the epoch is there."""
        self._refresh()
        if not files or self._log.last_epoch(self.application) >= epoch:
            return
        named = [self._named(file, epoch, i) for i, file in enumerate(files)]
        while self._log.last_epoch(self.application) < epoch:
            try:
                self._log.commit(self._actions(named, epoch))
            except FileExistsError:
                # Another writer was faster; appending has no conflicts, so the next version is as good.
                self._refresh()

    def _named(self, file: str, epoch: int, number: int) -> str:
        """Gives a staged file a name that no other attempt has."""
        suffix = file.rpartition("/")[2].partition(".")[2]
        name = f"epoch-{epoch:09d}-{number:03d}-{uuid4().hex}.{suffix}"
        self.storage.move(f"{self.staged}/{file}", name)
        return name

    def _actions(self, files: list[str], epoch: int) -> list[dict[str, Any]]:
        now = time.time_ns() // 1_000_000
        info = {"timestamp": now, "operation": "STREAMING UPDATE", "engineInfo": ENGINE, "isBlindAppend": True}
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        if self._log.metadata is None:
            actions.append({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}})
            actions.append({"metaData": {
                "id": str(uuid4()), "format": {"provider": "parquet", "options": {}}, "schemaString": self._schema,
                "partitionColumns": [], "configuration": {}, "createdTime": now}})  # fmt: skip
        actions.append({"txn": {"appId": self.application, "version": epoch, "lastUpdated": now}})
        for file in files:
            actions.append({"add": {
                "path": file, "partitionValues": {}, "size": self.storage.size(file), "modificationTime": now,
                "dataChange": True}})  # fmt: skip
        return actions

    def _refresh(self) -> None:
        """Reads what has been committed since; HeadraceError if the table is not, or no longer, one for the results."""
        self._log.refresh()
        known = self._log.metadata
        if known is not None and '"nullable":false' in json.dumps(
            json.loads(known["schemaString"]), separators=(",", ":")
        ):
            raise HeadraceError(
                f"the Delta table {self.storage.root} has columns that are NOT NULL, results may be NULL; "
                "give the query another path"
            )
        if known is not None and _columns(known["schemaString"]) != _columns(self._schema):
            raise HeadraceError(
                f"the Delta table {self.storage.root} has the columns {_columns(known['schemaString'])}, "
                f"the results {_columns(self._schema)}; give the query another path"
            )


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


def _columns(schema: str) -> str:
    return ", ".join(f"{field['name']} {json.dumps(field['type'])}" for field in json.loads(schema)["fields"])
