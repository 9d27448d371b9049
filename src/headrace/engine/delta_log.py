"""The log of a Delta table, as far as an appending writer must know it: read, one commit added, compacted now and then.

A version of the table is a file of actions, created once only; a checkpoint holds all that is true as of its version.
https://github.com/delta-io/delta/blob/master/PROTOCOL.md, reader version 1, writer version 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.engine.storage import Storage
from headrace.errors import HeadraceError

__all__ = ["ENGINE", "DeltaLog"]

ENGINE = "headrace"
# Versions between two checkpoints: readers have to read as many small files at most.
CHECKPOINT_EVERY = 50
LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_TEXTS = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct({
            "path": pa.string(), "partitionValues": _TEXTS, "size": pa.int64(), "modificationTime": pa.int64(),
            "dataChange": pa.bool_()}),
        "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
        "metaData": pa.struct({
            "id": pa.string(), "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
            "schemaString": pa.string(), "partitionColumns": pa.list_(pa.string()), "configuration": _TEXTS,
            "createdTime": pa.int64()}),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)  # fmt: skip


class DeltaLog:
    """What the log says up to `version`; -1 before there is a table."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.version = -1
        self.metadata: dict[str, Any] | None = None
        self._protocol: dict[str, Any] = {}
        self._epochs: dict[str, int] = {}
        # Who else writes to the table compacts its log as well.
        self._alone, self._compacted = True, -1

    def refresh(self) -> None:
        """Reads what has been committed since; HeadraceError if the table needs a writer that knows more."""
        if self.version < 0:
            self._read_checkpoint()
        for version in self._versions():
            if version > self.version:
                if version != self.version + 1:
                    raise HeadraceError(f"{self._storage.root}: version {self.version + 1} of the table is missing")
                self._apply(self._actions(version))
                self.version = version
        self._check()

    def last_epoch(self, application: str) -> int:
        """The last epoch of an application that has been committed; -1 before the first."""
        return self._epochs.get(application, -1)

    def commit(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Adds the next version; FileExistsError if another writer was faster."""
        made = list(actions)
        body = "\n".join(json.dumps(action, separators=(",", ":")) for action in made) + "\n"
        self._storage.create(f"{LOG}/{self.version + 1:020d}.json", body.encode())
        self._apply(made)
        self.version += 1
        if self._alone and self.version - self._compacted >= CHECKPOINT_EVERY:
            self._write_checkpoint()

    def _versions(self) -> list[int]:
        found = (_COMMIT.fullmatch(name) for name in self._storage.names(LOG))
        return sorted(int(match.group(1)) for match in found if match)

    def _actions(self, version: int) -> list[dict[str, Any]]:
        text = (self._storage.read(f"{LOG}/{version:020d}.json") or b"").decode()
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def _apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        own = False
        for action in actions:
            self._protocol = action.get("protocol") or self._protocol
            self.metadata = action.get("metaData") or self.metadata
            if action.get("txn"):
                self._epochs[action["txn"]["appId"]] = action["txn"]["version"]
            own = own or (action.get("commitInfo") or {}).get("engineInfo") == ENGINE
        self._alone = self._alone and own

    def _check(self) -> None:
        if self.metadata is None:
            return
        needed = (self._protocol.get("minReaderVersion", 1), self._protocol.get("minWriterVersion", 2))
        if needed[0] > 1 or needed[1] > 2 or "delta.invariants" in self.metadata["schemaString"]:
            raise HeadraceError(
                f"the Delta table {self._storage.root} uses features (reader {needed[0]}, writer {needed[1]}) that "
                "Headrace does not write; give the query a table of its own"
            )
        if self.metadata["partitionColumns"]:
            raise HeadraceError(
                f"the Delta table {self._storage.root} is partitioned; give the query a table of its own"
            )

    def _read_checkpoint(self) -> None:
        pointer = self._storage.read(f"{LOG}/_last_checkpoint")
        if pointer is None:
            return
        last = json.loads(pointer)
        version, parts = last["version"], last.get("parts")
        names = [f"{version:020d}.checkpoint.parquet"]
        if parts:
            names = [f"{version:020d}.checkpoint.{i + 1:010d}.{parts:010d}.parquet" for i in range(parts)]
        for name in names:
            data = self._storage.read(f"{LOG}/{name}")
            if data is None:
                raise HeadraceError(f"{self._storage.root}/{LOG}/{name} is missing")
            rows = pq.read_table(pa.BufferReader(data), columns=["txn", "metaData", "protocol"])
            for column, values in rows.to_pydict().items():
                self._apply({column: _plain(value)} for value in values if value is not None)
        self._alone = (last.get("tags") or {}).get("engine") == ENGINE
        self.version = self._compacted = version

    def _write_checkpoint(self) -> None:
        """All that is true now in one file; only for a table that nobody else writes to, so nothing was removed."""
        before = None
        if self._compacted >= 0:
            data = self._storage.read(f"{LOG}/{self._compacted:020d}.checkpoint.parquet")
            if data is None:
                return
            before = pq.read_table(pa.BufferReader(data), schema=_CHECKPOINT)
            before = before.filter(before["add"].is_valid())
        commits = (self._actions(version) for version in range(self._compacted + 1, self.version + 1))
        adds = [action["add"] for actions in commits for action in actions if "add" in action]
        rows: list[dict[str, Any]] = [{"protocol": self._protocol}, {"metaData": self.metadata}]
        rows += [{"txn": {"appId": name, "version": epoch}} for name, epoch in self._epochs.items()]
        rows += [{"add": {**add, "dataChange": False}} for add in adds]
        table = pa.Table.from_pylist(rows, schema=_CHECKPOINT)
        whole = table if before is None else pa.concat_tables([table, before])
        out = pa.BufferOutputStream()
        pq.write_table(whole, out)
        self._storage.replace(f"{LOG}/{self.version:020d}.checkpoint.parquet", out.getvalue().to_pybytes())
        pointer = {"version": self.version, "size": whole.num_rows, "tags": {"engine": ENGINE}}
        self._storage.replace(f"{LOG}/_last_checkpoint", json.dumps(pointer).encode())
        self._compacted = self.version


def _plain(value: Any) -> Any:
    """A value of a checkpoint as the log's JSON has it: maps are objects there."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return dict(value)
    return value
