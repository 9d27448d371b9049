"""Where results go. Every sink takes the results of one query and epoch, and takes them again without harm.

parquet, json, csv, orc   files `epoch-N-i`, replaced as a whole when epoch N is written again
memory                    a table per epoch in the driver, replaced likewise
console                   printed; a replayed epoch says so
python                    a callable `f(results, epoch)`; the same epoch always brings the same rows
delta                     one version of the table per epoch, skipped when it is there (`delta_sink.py`)
jdbc                      one transaction of the database per epoch, skipped when it has happened (`jdbc_sink.py`)
kafka                     JSON keyed by group, at least once; headers name query and epoch (`kafka_sink.py`)
any other Spark format    Spark's writer, once per epoch unless the engine dies between the write and its note of it
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headrace.engine.checkpoint import Checkpoint
from headrace.engine.delta_sink import DeltaSink
from headrace.engine.file_sink import FileSink
from headrace.engine.jdbc_sink import JdbcSink
from headrace.engine.kafka_sink import KafkaSink
from headrace.engine.secrets import resolve
from headrace.engine.storage import Storage, open_storage
from headrace.errors import Problem, SpecError
from headrace.model import Query, SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["ConsoleSink", "FileSink", "FormatSink", "MemorySink", "PythonSink", "Sink", "forget_sink", "open_sink"]

FILE_FORMATS = ("parquet", "json", "csv", "orc")
# Rows of an epoch shown on the console.
CONSOLE_ROWS = 20


class Sink(Protocol):
    """Takes the results of one query."""

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        """Takes an epoch's results; `replay` says that it may have been given some of them before. Rows, if known."""


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
        self.options = resolve(spec.options, f"query '{query}'")

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        note = f"delivered/{self.query}"
        if replay and self.storage.read(note) == str(epoch).encode():
            return None
        writer = results.write.format(self.spec.format).options(**self.options)
        writer = writer.mode(self.options.get("mode", "append"))
        writer.save(self.spec.path) if self.spec.path else writer.save()
        self.storage.replace(note, str(epoch).encode())
        return None


def open_sink(
    question: Query,
    spark: SparkSession,
    checkpoint: Checkpoint,
    function: Callable[[Any, int], Any] | None,
    fresh: bool,
) -> Sink:
    """The sink a query asks for; a fresh checkpoint must not find results of another in a folder."""
    spec, query = question.sink, question.name
    if function is not None:
        return PythonSink(function)
    # What keeps account of epochs itself does so under this name; another checkpoint is another application.
    application = f"headrace-{query}-{checkpoint.id[:12]}"
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
            sink = FileSink(spec, storage)
            sink.clear()
            return sink
        case "delta":
            if spec.path is None:
                raise SpecError(Problem("a delta sink needs a path", query=query))
            columns = ", ".join(f"`{output.name}` {output.type}" for output in question.finish.outputs)
            return DeltaSink(spec, columns, open_storage(spec.path, spark), application)
        case "kafka":
            return KafkaSink(question)
        case "jdbc":
            return JdbcSink(question, spark, application)
        case _:
            return FormatSink(spec, query, checkpoint.storage)


def forget_sink(query: str, sink: Sink, checkpoint: Checkpoint) -> None:
    """Removes what a sink that is not used any more keeps for its own ends; results stay."""
    if isinstance(sink, FileSink):
        sink.clear()
    elif isinstance(sink, FormatSink):
        checkpoint.storage.delete(f"delivered/{query}")


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
