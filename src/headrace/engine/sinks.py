"""Where results go. Every sink takes the results of one query and epoch, and takes them again without harm.

parquet, json, csv, orc   files `epoch-N-i`, replaced as a whole when epoch N is written again
memory                    a table per epoch in the driver, replaced likewise
console                   printed; a replayed epoch says so
python                    a callable `f(results, epoch)`; the same epoch always brings the same rows
delta                     Spark's writer with the query and epoch as transaction id
any other Spark format    Spark's writer, once per epoch unless the engine dies between the write and its note of it
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import pyarrow as pa

from headrace.engine.storage import Storage, for_spark, open_storage
from headrace.errors import Problem, SpecError
from headrace.model import SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ConsoleSink", "FileSink", "FormatSink", "MemorySink", "PythonSink", "Sink", "open_sink"]

FILE_FORMATS = ("parquet", "json", "csv", "orc")
STAGING = "_staging"
# Rows of an epoch shown on the console.
CONSOLE_ROWS = 20


class Sink(Protocol):
    """Takes the results of one query."""

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        """Takes an epoch's results; `replay` says that it may have been given some of them before. Rows, if known."""


class FileSink:
    """Files in a folder, named after the epoch; what is being written lies in a folder readers pass over."""

    def __init__(self, spec: SinkSpec, storage: Storage) -> None:
        self.format, self.options, self.storage = spec.format, dict(spec.options), storage

    @property
    def staging(self) -> str:
        """Where tasks put files until the epoch takes them over."""
        return f"{self.storage.root}/{STAGING}"

    def adopt(self, files: list[str], epoch: int, replay: bool) -> None:
        """Makes staged files the results of the epoch, in place of any earlier ones."""
        if replay:
            for name in self.storage.names(""):
                if name.startswith(f"epoch-{epoch:09d}-"):
                    self.storage.delete(name)
        for i, file in enumerate(files):
            suffix = file.rpartition("/")[2].partition(".")[2]
            self.storage.move(f"{STAGING}/{file}", f"epoch-{epoch:09d}-{i:03d}.{suffix}")

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        folder = uuid4().hex
        results.write.format(self.format).options(**self.options).save(f"{for_spark(self.staging)}/{folder}")
        names = self.storage.names(f"{STAGING}/{folder}")
        self.adopt([f"{folder}/{name}" for name in names if name.startswith("part-")], epoch, replay)
        self.storage.delete(f"{STAGING}/{folder}")
        return None


class MemorySink:
    """Keeps results in the driver, for notebooks and tests."""

    def __init__(self) -> None:
        self.epochs: dict[int, pa.Table] = {}

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        self.epochs[epoch] = results.toArrow()
        return int(self.epochs[epoch].num_rows)

    def table(self) -> pa.Table | None:
        """All results so far."""
        return pa.concat_tables(self.epochs[n] for n in sorted(self.epochs)) if self.epochs else None


class ConsoleSink:
    """Prints results as they come."""

    def __init__(self, query: str, write: Callable[[str], Any] | None = None) -> None:
        self.query, self._write = query, write or sys.stdout.write

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        table = results.toArrow()
        if table.num_rows:
            again = " (again)" if replay else ""
            lines = [f"{self.query}, epoch {epoch}{again}: {table.num_rows} rows", "  " + ", ".join(table.column_names)]
            shown = table.slice(0, CONSOLE_ROWS).to_pylist()
            lines += ["  " + ", ".join(str(value) for value in row.values()) for row in shown]
            if table.num_rows > CONSOLE_ROWS:
                lines.append(f"  ... and {table.num_rows - CONSOLE_ROWS} more")
            self._write("\n".join(lines) + "\n")
        return int(table.num_rows)


class PythonSink:
    """Calls a function of the user's with the results as a DataFrame, and the epoch."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self.function = function

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        self.function(results, epoch)
        return None


class FormatSink:
    """Any batch format Spark can write, by name."""

    def __init__(self, spec: SinkSpec, query: str, storage: Storage) -> None:
        self.spec, self.query, self.storage = spec, query, storage
        # Delta remembers this with the epoch; another checkpoint is another application.
        self.application = f"headrace-{query}-{sha256(storage.root.encode()).hexdigest()[:12]}"

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        note = f"delivered/{self.query}"
        if replay and self.storage.read(note) == str(epoch).encode():
            return None
        writer = results.write.format(self.spec.format).options(**dict(self.spec.options))
        if self.spec.format == "delta":
            writer = writer.option("txnAppId", self.application).option("txnVersion", str(epoch))
        writer = writer.mode(dict(self.spec.options).get("mode", "append"))
        writer.save(self.spec.path) if self.spec.path else writer.save()
        self.storage.replace(note, str(epoch).encode())
        return None


def open_sink(
    spec: SinkSpec,
    query: str,
    spark: SparkSession,
    checkpoint: Storage,
    function: Callable[[Any, int], Any] | None,
    fresh: bool,
) -> Sink:
    """The sink a query asks for; a fresh checkpoint must not find results of another in a folder."""
    if function is not None:
        return PythonSink(function)
    match spec.format:
        case "console":
            return ConsoleSink(query)
        case "memory":
            return MemorySink()
        case "python":
            return PythonSink(_load(dict(spec.options).get("function", ""), query))
        case format_ if format_ in FILE_FORMATS:
            if spec.path is None:
                raise SpecError(Problem(f"a {format_} sink needs a path", query=query))
            storage = open_storage(spec.path, spark)
            storage.make_folder("")
            if fresh and any(name.startswith("epoch-") for name in storage.names("")):
                raise SpecError(
                    Problem(
                        f"{spec.path} holds results of an earlier checkpoint",
                        query=query,
                        hint="remove them, choose another path, or go on with that checkpoint",
                    )
                )
            storage.delete(STAGING)
            return FileSink(spec, storage)
        case _:
            return FormatSink(spec, query, checkpoint)


def _load(name: str, query: str) -> Callable[[Any, int], Any]:
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as exc:
        raise SpecError(
            Problem(f"sink function '{name}' cannot be loaded: {exc}", query=query, hint="write function: module:name")
        ) from exc
    assert callable(function)
    return function  # type: ignore[no-any-return]
