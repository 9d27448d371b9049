"""Where results go. Every sink takes the results of one query and epoch, and takes them again after a crash.

parquet, json, csv, orc   files `epoch-N-i`, replaced as a whole when epoch N is written again
memory                    a table per epoch in the driver, replaced likewise; the newest, up to a number of rows
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
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine.failures import failure_of
from headrace.engine.sinks.delta import DeltaSink
from headrace.engine.sinks.files import FileSink, claim
from headrace.engine.sinks.jdbc import JdbcSink
from headrace.engine.sinks.kafka import KafkaSink
from headrace.engine.sinks.shape import Delivered, shape_of
from headrace.engine.sinks.sink import Sink, had_before
from headrace.engine.spark.secrets import resolve
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.storage import Storage, open_storage
from headrace.errors import HeadraceError, Problem, SpecError, StateError
from headrace.kernels.arrow_types import arrow_type
from headrace.language import FILE_SINKS, clashes
from headrace.model import FolderMark, Pipeline, Query, Shape, SinkSpec, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ConsoleSink",
    "FileSink",
    "FormatSink",
    "MemorySink",
    "PythonSink",
    "Sink",
    "forget_sinks",
    "open_sink",
    "reach_sink",
    "refuse_clashes",
    "refuse_later_epochs",
]

# Formats of Spark's own that keep no results.
KEEPING_NOTHING = ("noop",)
FILE_FORMATS = FILE_SINKS
# Rows of an epoch shown on the console.
CONSOLE_ROWS = 20
# Rows a memory sink keeps unless it is told otherwise: some hundred megabytes.
MEMORY_ROWS = 1_000_000


class MemorySink(Sink):
    """Keeps the newest results in the driver, whole epochs of them, for notebooks and tests."""

    def __init__(
        self,
        query: str = "",
        most_rows: int = MEMORY_ROWS,
        note: Callable[[str], Any] = str,
        schema: pa.Schema | None = None,
    ) -> None:
        self.query, self.most_rows, self._note, self._schema = query, most_rows, note, schema or pa.schema([])
        self.epochs: dict[int, pa.Table] = {}
        self.dropped = 0

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        table = results.limit(self.most_rows + 1).toArrow()
        if table.num_rows > self.most_rows:
            raise HeadraceError(
                f"epoch {epoch} has more than {self.most_rows:,} results, which is all that a memory sink keeps; give "
                "the query another sink, or the sink the option rows"
            )
        self.epochs[epoch] = table
        while sum(each.num_rows for each in self.epochs.values()) > self.most_rows:
            if not self.dropped:
                self._note(
                    f"query '{self.query}': its memory sink keeps the newest {self.most_rows:,} results from now on"
                )
            self.dropped += self.epochs.pop(min(self.epochs)).num_rows
        return int(table.num_rows)

    def forget(self) -> None:
        self.epochs.clear()

    def table(self) -> pa.Table:
        """The results it keeps: all of them until there are more than its rows."""
        if not self.epochs:
            return self._schema.empty_table()
        return pa.concat_tables(self.epochs[n] for n in sorted(self.epochs))


class ConsoleSink(Sink):
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


class PythonSink(Sink):
    """Calls a function of the user's with the results as a DataFrame, and the epoch."""

    def __init__(self, function: Callable[[Any, int], Any]) -> None:
        self.function = function

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        self.function(results, epoch)
        return None


class FormatSink(Sink):
    """Any batch format Spark can write, by name."""

    def __init__(self, spec: SinkSpec, query: str, storage: Storage) -> None:
        self.spec, self.query, self._delivered = spec, query, Delivered(storage, query)
        self.options = resolve(spec.options, f"query '{query}'")

    def last_epoch(self) -> int:
        return self._delivered.epoch

    def forget(self) -> None:
        self._delivered.forget()

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        if had_before(f"the {self.spec.format} sink", self.last_epoch(), epoch, replay):
            return None
        writer = results.write.format(self.spec.format).options(**self.options)
        writer = writer.mode(self.options.get("mode", "append"))
        writer.save(self.spec.path) if self.spec.path else writer.save()
        self._delivered.note(epoch)
        return None

    def claim(self, columns: Shape) -> None:
        """Refuses results with other columns than those that the place has had from this query."""
        place = (self.spec.format, self.spec.path or "", *(f"{k}={text}" for k, text in sorted(self.options.items())))
        self._delivered.claim(self.spec.path or f"the {self.spec.format} sink", place, columns)


def forget_sinks(gone: Mapping[str, Sink], sinks: Mapping[str, Sink], note: Callable[[str], Any]) -> None:
    """Frees what sinks of queries that have gone keep; what cannot be freed now is garbage, and nothing else."""
    for name, sink in gone.items():
        # A sink in the place of another of that name goes on with its note.
        if type(sinks.get(name)) is type(sink) and not isinstance(sink, FileSink):
            continue
        try:
            sink.forget()
        except Exception as failure:
            note(f"the sink of query '{name}' could not be cleared: {shown(failure_of(failure).text)}")


def refuse_clashes(pipeline: Pipeline, checkpoint: str, spark: SparkSession) -> None:
    """SpecError if queries write to one place, or where state is, or where their streams read."""
    default = str(spark._jsc.hadoopConfiguration().get("fs.defaultFS") or "")
    found = clashes(pipeline.streams, pipeline.queries, checkpoint, default)
    if found:
        raise SpecError(found)


def refuse_later_epochs(sinks: Mapping[str, Sink], checkpoint: Checkpoint, epoch: int) -> None:
    """StateError if a sink has had epochs that the checkpoint does not know: `epoch` is its last.

    One more than the last may be there: a crash came between the sink and the manifest. Its decision says so.
    """
    known = epoch + 1 if checkpoint.decision(epoch + 1) is not None else epoch
    later = {name: last for name, sink in sinks.items() if (last := sink.last_epoch()) > known}
    if later:
        told = ", ".join(f"that of '{name}' has had epoch {last}" for name, last in later.items())
        raise StateError(
            f"checkpoint {checkpoint.storage.root} ends with epoch {epoch}, and sinks are ahead of it: {told}. It was "
            "set back, and going on would lose or double results: restore the newer checkpoint; or start with a new "
            "one, and clear these sinks or give their queries other places"
        )


def open_sink(
    question: Query,
    spark: SparkSession,
    checkpoint: Checkpoint,
    function: Callable[[Any, int], Any] | None,
    known: bool,
    note: Callable[[str], Any],
) -> Sink:
    """The sink a query asks for, made that of the checkpoint; `known`: the checkpoint has run the query before."""
    sink = reach_sink(question, spark, checkpoint, function, known, note)
    if isinstance(sink, DeltaSink):
        sink.claim()
    if isinstance(sink, KafkaSink | FormatSink) and question.sink.format not in KEEPING_NOTHING:
        sink.claim(shape_of(question))
    return sink


def reach_sink(
    question: Query,
    spark: SparkSession,
    checkpoint: Checkpoint,
    function: Callable[[Any, int], Any] | None,
    known: bool,
    note: Callable[[str], Any],
) -> Sink:
    """The sink a query asks for, as it is found: a Delta table may be another's, or nobody's."""
    spec, query = question.sink, question.name
    if function is not None:
        return PythonSink(function)
    # What keeps account of epochs itself does so under this name; another checkpoint is another application.
    application = f"headrace-{query}-{checkpoint.id[:12]}"
    match spec.format:
        case "console":
            return ConsoleSink(query)
        case "memory":
            return MemorySink(query, _rows(spec, query), note, _schema(question))
        case "python":
            return PythonSink(_load(dict(spec.options).get("function", ""), query))
        case format_ if format_ in FILE_FORMATS:
            if spec.path is None:
                raise SpecError(Problem(f"a {format_} sink needs a path", query=query))
            storage = open_storage(spec.path, spark)
            mark = FolderMark(checkpoint.id, shape_of(question), spec.partition_by)
            claim(storage, mark, known, query)
            options = resolve(spec.options, f"query '{query}'")
            sink = FileSink(replace(spec, options=tuple(options.items())), storage, mark)
            sink.forget()
            return sink
        case "delta":
            if spec.path is None:
                raise SpecError(Problem("a delta sink needs a path", query=query))
            columns = ", ".join(f"`{output.name}` {output.type}" for output in question.finish.outputs)
            return DeltaSink(spec, columns, open_storage(spec.path, spark), application)
        case "kafka":
            return KafkaSink(question, checkpoint.storage)
        case "jdbc":
            return JdbcSink(question, spark, application)
        case _:
            return FormatSink(spec, query, checkpoint.storage)


def _schema(query: Query) -> pa.Schema:
    """The columns of a query's results as Arrow has them; none where Arrow has no such type."""
    try:
        return pa.schema([(each.name, arrow_type(each.type)) for each in query.finish.outputs])
    except ValueError:
        return pa.schema([])


def _rows(spec: SinkSpec, query: str) -> int:
    text = dict(spec.options).get("rows", str(MEMORY_ROWS))
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise SpecError(Problem(f"a memory sink keeps a number of rows, not '{text[:40]}'", query=query))
    return int(text)


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
