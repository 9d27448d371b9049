"""Results as files in a folder, an epoch's under its own names.

A folder belongs to one checkpoint, which `_headrace.json` in it names: epochs are numbered per checkpoint, so another
one would replace files that it did not write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.engine.sinks.shape import refuse_another
from headrace.engine.sinks.sink import Sink, had_before
from headrace.engine.state.storage import Storage, for_spark
from headrace.errors import Problem, SpecError
from headrace.model import ANOTHER_HINT, MARKER, OTHER_FOLDERS, OTHERS, OTHERS_HINT, FolderMark, SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter

__all__ = ["STAGING", "FileSink", "claim", "owner_of", "renewed"]

# Readers of folders pass over names that begin so.
STAGING = "_staging"
_RESULTS = re.compile(r"epoch-(\d+)-")


class FileSink(Sink):
    """Files in a folder, named after the epoch; what is being written lies in a folder readers pass over."""

    def __init__(self, spec: SinkSpec, storage: Storage, mark: FolderMark | None = None) -> None:
        self.format, self.options, self.storage, self._mark = spec.format, dict(spec.options), storage, mark
        self.partition_by, self.key = spec.partition_by, spec.key
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
            for path in results_in(self.storage):
                if path.rpartition("/")[2].startswith(f"epoch-{epoch:09d}-"):
                    self.storage.delete(path)
        if files and self.last_epoch() < 0 and self._mark is not None:
            # Another query may have claimed the folder while nothing was in it, and not have come to run.
            self.storage.replace(MARKER, self._mark.to_json().encode())
        for i, file in enumerate(files):
            folder, suffix = partition_of(file), file.rpartition("/")[2].partition(".")[2]
            if folder:
                self.storage.make_folder(folder)
            self.storage.move(f"{self.staged}/{file}", f"{folder}epoch-{epoch:09d}-{i:03d}.{suffix}")
            self._last = epoch

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        folder = uuid4().hex
        try:
            writer = self._writer(nullable(results))
            writer.save(f"{for_spark(self.staging)}/{folder}")
            self.adopt([f"{folder}/{path}" for path in self._written(folder)], epoch, replay)
        finally:
            self.storage.delete(f"{self.staged}/{folder}")
        return None

    def _writer(self, rows: DataFrame) -> DataFrameWriter:
        if not self.partition_by:
            return rows.write.format(self.format).options(**self.options)
        # One task has all rows of a folder, so that an epoch adds one file to it.
        by_folder = rows.repartition(*(f"`{name}`" for name in self.partition_by))
        return by_folder.write.format(self.format).options(**self.options).partitionBy(*self.partition_by)

    def _written(self, folder: str) -> list[str]:
        """What Spark has written to a staged folder."""
        found = [""]
        for _ in self.partition_by:
            found = [
                f"{path}{name}/"
                for path in found
                for name in self.storage.names(f"{self.staged}/{folder}/{path}".rstrip("/"))
                if "=" in name
            ]
        return [
            f"{path}{name}"
            for path in found
            for name in self.storage.names(f"{self.staged}/{folder}/{path}".rstrip("/"))
            if name.startswith("part-")
        ]


def partition_of(file: str) -> str:
    """The folders by value that a staged file goes to, ending with a slash; none of a file that lies in none.

    >>> partition_of("4f/day=2024-01-01/k=a/part-0.orc"), partition_of("4f/part-0.orc"), partition_of("x.orc")
    ('day=2024-01-01/k=a/', '', '')
    """
    return "".join(f"{part}/" for part in file.split("/")[1:-1])


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


def results_in(storage: Storage, folder: str = "") -> Iterator[str]:
    """The files of results in a folder and in folders by value."""
    for name in storage.names(folder.rstrip("/")):
        if _RESULTS.match(name):
            yield f"{folder}{name}"
        elif "=" in name:
            yield from results_in(storage, f"{folder}{name}/")


def epochs_in(storage: Storage) -> list[int]:
    """The epochs whose results are in a folder."""
    found = (_RESULTS.match(path.rpartition("/")[2]) for path in results_in(storage))
    return [int(match.group(1)) for match in found if match]


def claim(storage: Storage, made: FolderMark, known: bool, query: str) -> None:
    """Makes a folder that of a checkpoint, for results with the columns of a mark; SpecError if it holds any others.

    Checkpoints of before there were markers know the query: they go on with their folder.
    """
    storage.make_folder("")
    mark = mark_of(storage)
    if mark is None and (known or not epochs_in(storage)):
        try:
            storage.create(MARKER, made.to_json().encode())
            return
        except FileExistsError:  # somebody else came in between
            mark = mark_of(storage)
    if mark is None or mark.checkpoint != made.checkpoint:
        whose = "an earlier checkpoint" if mark is None else f"another checkpoint ({mark.checkpoint[:12]})"
        raise SpecError(Problem(f"{storage.root} {OTHERS.format(whose)}", query=query, hint=OTHERS_HINT))
    if mark == made:
        return
    if made.columns is not None and epochs_in(storage):
        refuse_another(storage.root, mark.columns, made.columns, query)
        if mark.columns is not None and mark.partition_by != made.partition_by:
            raise SpecError(Problem(OTHER_FOLDERS.format(storage.root), query=query, hint=ANOTHER_HINT))
    storage.replace(MARKER, made.to_json().encode())


def owner_of(storage: Storage) -> str | None:
    """The checkpoint that a folder belongs to, if to any."""
    mark = mark_of(storage)
    return None if mark is None else mark.checkpoint


def mark_of(storage: Storage) -> FolderMark | None:
    """What a folder says of itself, if it is one of results."""
    data = storage.read(MARKER)
    try:
        return None if data is None else FolderMark.from_json(data)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise SpecError(f"{storage.root}/{MARKER} cannot be read: {exc}; restore it, or choose another path") from exc
