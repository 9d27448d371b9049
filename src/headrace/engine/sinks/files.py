"""Results as files in a folder, an epoch's under its own names.

A folder belongs to one checkpoint, which `_headrace.json` in it names: epochs are numbered per checkpoint, so another
one would replace files that it did not write.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.engine.sinks.sink import Sink, had_before
from headrace.engine.state.storage import Storage, for_spark
from headrace.errors import Problem, SpecError
from headrace.model import SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["MARKER", "STAGING", "FileSink", "claim", "owner_of", "renewed"]

# Readers of folders pass over names that begin so.
STAGING = "_staging"
MARKER = "_headrace.json"
_RESULTS = re.compile(r"epoch-(\d+)-")


class FileSink(Sink):
    """Files in a folder, named after the epoch; what is being written lies in a folder readers pass over."""

    def __init__(self, spec: SinkSpec, storage: Storage) -> None:
        self.format, self.options, self.storage = spec.format, dict(spec.options), storage
        self.staged = STAGING  # within the folder
        self._last: int | None = None

    @property
    def staging(self) -> str:
        """Where tasks put files until the epoch takes them over."""
        return f"{self.storage.root}/{self.staged}"

    def last_epoch(self) -> int:
        if self._last is None:
            self._last = max(epochs_in(self.storage), default=-1)
        return self._last

    def forget(self) -> None:
        """Removes what attempts have left that did not come to their end; nobody must be writing."""
        self.storage.delete(self.staged)

    def adopt(self, files: list[str], epoch: int, replay: bool) -> None:
        """Makes staged files the results of the epoch, in place of those that an interrupted attempt has left."""
        if had_before(f"the folder {self.storage.root}", self.last_epoch(), epoch, replay):
            for name in self.storage.names(""):
                if name.startswith(f"epoch-{epoch:09d}-"):
                    self.storage.delete(name)
        for i, file in enumerate(files):
            suffix = file.rpartition("/")[2].partition(".")[2]
            self.storage.move(f"{self.staged}/{file}", f"epoch-{epoch:09d}-{i:03d}.{suffix}")
            self._last = epoch

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        folder = uuid4().hex
        try:
            rows = nullable(results)
            rows.write.format(self.format).options(**self.options).save(f"{for_spark(self.staging)}/{folder}")
            names = self.storage.names(f"{self.staged}/{folder}")
            self.adopt([f"{folder}/{name}" for name in names if name.startswith("part-")], epoch, replay)
        finally:
            self.storage.delete(f"{self.staged}/{folder}")
        return None


def nullable(results: DataFrame) -> DataFrame:
    """The same rows under a schema that lets every column be NULL: what Spark can prove of an expression may differ
    from one plan to the next, and the files of a query have one schema."""
    return renewed(results, results._jdf.queryExecution())


def renewed(results: DataFrame, plan: Any) -> DataFrame:
    """The same rows by this very plan of theirs, whoever reads them, every column nullable."""
    from pyspark.sql import DataFrame

    session = results.sparkSession
    schema = results._jdf.schema().asNullable()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(plan.toRdd(), schema, False), session)


def epochs_in(storage: Storage) -> list[int]:
    """The epochs whose results are in a folder."""
    found = (_RESULTS.match(name) for name in storage.names(""))
    return [int(match.group(1)) for match in found if match]


def claim(storage: Storage, checkpoint: str, known: bool, query: str) -> None:
    """Makes a folder that of a checkpoint; SpecError if it holds results of another.

    Checkpoints of before there were markers know the query: they go on with their folder.
    """
    storage.make_folder("")
    owner = owner_of(storage)
    if owner is None and (known or not epochs_in(storage)):
        try:
            storage.create(MARKER, json.dumps({"checkpoint": checkpoint}).encode())
            return
        except FileExistsError:  # somebody else came in between
            owner = owner_of(storage)
    if owner != checkpoint:
        whose = "an earlier checkpoint" if owner is None else f"another checkpoint ({owner[:12]})"
        raise SpecError(
            Problem(
                f"{storage.root} holds results of {whose}, whose files this one would replace",
                query=query,
                hint="to start anew remove that folder as well as the checkpoint; or choose another path, or go on "
                "with the checkpoint that made them",
            )
        )


def owner_of(storage: Storage) -> str | None:
    """The checkpoint that a folder belongs to, if to any."""
    data = storage.read(MARKER)
    if data is None:
        return None
    try:
        return str(json.loads(data)["checkpoint"])
    except (ValueError, KeyError, TypeError) as exc:
        raise SpecError(f"{storage.root}/{MARKER} cannot be read: {exc}; restore it, or choose another path") from exc
