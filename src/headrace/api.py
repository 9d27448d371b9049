"""Pipelines from Python: the same model and engine as a pipeline file, over any streaming DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import model
from headrace.errors import Problem, SpecError
from headrace.language import (
    Given,
    absolute,
    bind_query,
    bind_selection,
    columns_of_header,
    load_pipeline,
    parse_schema,
    parse_type,
    stream_expected,
    with_expectations,
)
from headrace.model import (
    DEFAULT_AHEAD_US,
    DEFAULT_IDLE_US,
    DEFAULT_LIMIT_BYTES,
    Column,
    EngineSettings,
    QueryShedding,
    SinkSpec,
    Source,
    StepFunction,
    Stream,
    Table,
)
from headrace.units import parse_duration, parse_size

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.engine.run import Run
    from headrace.engine.watch.hooks import Hooks

__all__ = [
    "Expect",
    "Pipeline",
    "SinkChoice",
    "Step",
    "call",
    "console",
    "csv",
    "delta",
    "expect",
    "jdbc",
    "json",
    "kafka",
    "memory",
    "parquet",
    "sink",
    "step",
]


@dataclass(frozen=True)
class SinkChoice:
    """A sink, and the function behind it if it is one of the caller's."""

    spec: SinkSpec
    function: Callable[[Any, int], Any] | None = None


def sink(
    format: str,
    path: str | None = None,
    *,
    partition_by: Sequence[str] = (),
    key: Sequence[str] = (),
    latest: str = "window_end",
    **options: object,
) -> SinkChoice:
    """Any batch format Spark can write, by name.

    `partition_by` are columns by whose values files lie in folders. With a `key` a table (Delta, JDBC) keeps one result
    of each: that with the greatest value in the column `latest`.
    """
    place = None if path is None else _absolute(path)
    return SinkChoice(
        SinkSpec(format, place, _plain(options), tuple(partition_by), tuple(key), latest if key else None)
    )


def _plain(options: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    """Options as Spark takes them, texts all."""
    return tuple((key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in options.items())


def parquet(path: str, **options: Any) -> SinkChoice:
    """Parquet files in a folder, one or more per epoch; `partition_by=["day"]`: in folders by value."""
    return sink("parquet", path, **options)


def json(path: str, **options: Any) -> SinkChoice:
    """JSON lines in a folder."""
    return sink("json", path, **options)


def csv(path: str, **options: Any) -> SinkChoice:
    """CSV files in a folder."""
    return sink("csv", path, **options)


def delta(path: str, **options: Any) -> SinkChoice:
    """A Delta table; an epoch is one transaction, once. `key=["host"]`: the latest result of each key alone."""
    return sink("delta", path, **options)


def jdbc(url: str, table: str, **options: Any) -> SinkChoice:
    """A table of a database; an epoch is one transaction, once. `password="${env:NAME}"` is read from there.

    `key=["host"]`: the latest result of each key alone.
    """
    return sink("jdbc", None, url=url, dbtable=table, **options)


def kafka(servers: str, topic: str, **options: Any) -> SinkChoice:
    """JSON messages keyed by group, each at least once."""
    return sink("kafka", None, **{"kafka.bootstrap.servers": servers, "topic": topic, **options})


def console() -> SinkChoice:
    """Printed as results come."""
    return sink("console")


def memory(rows: int | None = None) -> SinkChoice:
    """Kept in the driver, the newest `rows` of them (a million unless given); read with `run.table(query)`."""
    return sink("memory") if rows is None else sink("memory", rows=rows)


def call(function: Callable[[Any, int], Any]) -> SinkChoice:
    """Calls `function(results, epoch)` with a DataFrame; the same epoch may come twice, with the same rows."""
    return SinkChoice(SinkSpec("python"), function)


@dataclass(frozen=True)
class Step:
    """A function with state of its own, and what its tables look like."""

    spec: StepFunction
    function: Callable[..., Any]


def step(
    function: Callable[[Any, Any], tuple[Any, Any]],
    *,
    state: str,
    results: str,
    version: int = 1,
    migration: str | None = None,
) -> Step:
    """`function(state, rows) -> (state, results)` over Arrow tables; `state` and `results` are columns in Spark DDL.

    It is called once per mini-partition of keys and epoch, with rows in the order of their time, when they are final. A
    state of another version is changed by `migration`, a `module:name`, or refused.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    try:
        return Step(StepFunction(name, parse_schema(state), parse_schema(results), version, migration), function)
    except ValueError as exc:
        raise SpecError(str(exc)) from exc


@dataclass(frozen=True)
class Expect:
    """Something that is expected, and what follows in an epoch in which it is not so."""

    text: str
    otherwise: str = "warn"


def expect(text: str, otherwise: str = "warn") -> Expect:
    """`late < 5 %` of a stream, `rows > 0` or a condition over each result of a query; otherwise warn, fail or stop."""
    return Expect(text, otherwise)


def _given(expected: Iterable[Expect | str]) -> tuple[Given, ...]:
    """Expectations as a caller gives them; a text alone warns."""
    made = (Expect(each) if isinstance(each, str) else each for each in expected)
    return tuple((each.text.strip(), each.otherwise) for each in made)


class Pipeline:
    """Streams and queries being put together; `start` runs them."""

    def __init__(self, name: str) -> None:
        self._model = model.Pipeline(name, (), ())
        self._frames: dict[str, DataFrame] = {}
        self._tables: dict[str, DataFrame] = {}
        self._functions: dict[str, Callable[[Any, int], Any]] = {}
        self._steps: dict[str, Callable[..., Any]] = {}

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        """The pipeline of a file; SpecError with every problem in it."""
        made = cls.__new__(cls)
        made._model, made._frames, made._tables = load_pipeline(path), {}, {}
        made._functions, made._steps = {}, {}
        return made

    @property
    def model(self) -> model.Pipeline:
        """The pipeline as bound and checked so far."""
        return self._model

    def stream(
        self,
        name: str,
        rows: DataFrame,
        *,
        time: str,
        lateness: str = "0 seconds",
        ahead: str | None = None,
        idle: str | None = None,
        expect: Iterable[Expect | str] = (),
        select: str | None = None,
    ) -> Pipeline:
        """Adds a streaming DataFrame under a name queries can use; `expect` is what its rows should be like.

        With `select="timestamp_millis(at) AS ts, user.id AS user WHERE kind = 'sale'"` queries see these columns, of
        which `time` is one.
        """
        if not name.isidentifier():
            raise SpecError(f"'{name}' cannot name a stream; use letters, digits and _")
        self._refuse_taken(name)
        if not rows.isStreaming:
            raise SpecError(f"stream '{name}' is not a streaming DataFrame; read it with spark.readStream")
        columns = tuple(Column(f.name, parse_type(f.dataType.simpleString())) for f in rows.schema.fields)
        selection = None if select is None else bind_selection(select, columns, name)
        if selection is not None:
            columns = tuple(column for column, _ in selection.columns)
        try:
            stream = Stream(
                name,
                columns,
                time,
                parse_duration(lateness),
                DEFAULT_AHEAD_US if ahead is None else parse_duration(ahead),
                DEFAULT_IDLE_US if idle is None else parse_duration(idle),
                expect=stream_expected(_given(expect)),
                select=selection,
            )
        except ValueError as exc:
            raise SpecError(str(exc)) from exc
        self._model = replace(self._model, streams=(*self._model.streams, stream))
        self._frames[name] = rows
        return self

    def table(
        self,
        name: str,
        rows: DataFrame | str,
        *,
        format: str = "parquet",
        schema: str | None = None,
        refresh: str | None = None,
        limit: str | int = DEFAULT_LIMIT_BYTES,
        on_error: str = "stop",
        **options: object,
    ) -> Pipeline:
        """Adds a table that queries can look rows up in: a DataFrame, or a path that Spark reads in this format.

        A path needs a schema in Spark DDL, unless it is of CSV files with a header. The table is copied when a run
        starts and every `refresh`, at most `limit` bytes of Parquet; where it cannot be read the run stops, or with
        `on_error="keep"` goes on with the last copy. A DataFrame that reads files has those of when it was made: give
        a path where files change.
        """
        if not name.isidentifier() or not name.isascii():
            raise SpecError(f"'{name}' cannot name a table; use letters, digits and _")
        self._refuse_taken(name)
        try:
            span = None if refresh is None else parse_duration(refresh)
            most = parse_size(limit) if isinstance(limit, str) else limit
            if isinstance(rows, str):
                source = Source(format, _absolute(rows), _plain(options))
                columns = columns_of_header(source) if schema is None else parse_schema(schema)
                if columns is None:
                    raise SpecError(f"table '{name}' needs a schema, such as schema='host STRING, zone INT'")
                table = Table(name, columns, source, span, most, on_error)
            else:
                table = Table(name, _columns_of(rows, f"table '{name}'"), None, span, most, on_error)
                self._tables[name] = rows
        except ValueError as exc:
            raise SpecError(str(exc)) from exc
        self._model = replace(self._model, tables=(*self._model.tables, table))
        return self

    def _refuse_taken(self, name: str) -> None:
        for what, names in (
            ("stream", [stream.name for stream in self._model.streams]),
            ("table", [table.name for table in self._model.tables]),
        ):
            if name.lower() in (each.lower() for each in names):
                raise SpecError(f"there is a {what} '{name}' already")

    def query(
        self,
        name: str,
        sql: str,
        *,
        sink: SinkChoice | None = None,
        priority: int = 0,
        weight: float = 1.0,
        lifetime: str | None = None,
        step: Step | None = None,
        shedding: str | dict[str, Any] | None = None,
        expect: Iterable[Expect | str] = (),
    ) -> Pipeline:
        """Adds a query; SpecError if it does not fit the streams added before it. Default sink: memory.

        With a lifetime, such as "2 hours", it ends when so much event time has passed since its first epoch. With a
        step, made by `hr.step`, a function with state of its own gets the rows of FROM s [PARTITION BY k]. With
        `shedding="never"` it loses no row where the pipeline sheds; with `shedding={"scale": True}` sums and counts are
        scaled to all rows, with their errors, and with `{"protect": "k"}` rare values of k are kept before others.
        `expect` is what its results should be like in every epoch: texts, or what `hr.expect` makes.
        """
        if any(known.name.lower() == name.lower() for known in self._model.queries):
            raise SpecError(Problem(f"there is a query '{name}' already"))
        chosen = sink or memory()
        streams = {stream.name: stream for stream in self._model.streams}
        bound = bind_query(
            name,
            sql,
            streams,
            sink=chosen.spec,
            priority=priority,
            weight=weight,
            lifetime=lifetime,
            step=None if step is None else step.spec,
            shedding=_shedding(name, shedding),
            queries={query.name: query for query in self._model.queries},
            tables={table.name: table for table in self._model.tables},
        )
        bound = with_expectations(bound, _given(expect))
        self._model = replace(self._model, queries=(*self._model.queries, bound))
        if chosen.function is not None:
            self._functions[name] = chosen.function
        if step is not None:
            self._steps[name] = step.function
        return self

    def __repr__(self) -> str:
        streams, queries = self._model.streams, self._model.queries
        return f"<Pipeline '{self._model.name}': {len(streams)} streams, {len(queries)} queries>"

    def _repr_html_(self) -> str:
        rows = [
            ("stream", each.name, ", ".join(f"{c.name} {c.type}" for c in each.columns)) for each in self._model.streams
        ]
        rows += [("query", each.name, each.sql) for each in self._model.queries]
        cells = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
        return f"<b>{escape(self._model.name)}</b><table>{cells}</table>"

    def start(
        self,
        spark: SparkSession,
        checkpoint: str | None = None,
        trigger: str | None = None,
        *,
        schedule: str | None = None,
        join: str | None = None,
        bins: int | None = None,
        metrics: int | None = None,
        shedding: str | None = None,
        backlog: str | None = None,
        objective: str | None = None,
        once: bool = False,
        flush: bool = False,
        hooks: Hooks | None = None,
    ) -> Run:
        """Starts the pipeline from where its checkpoint ends; `once` stops when all rows there are now are used."""
        from headrace.engine.assemble import start

        settings: EngineSettings = self._model.engine
        try:
            if trigger is not None:
                settings = replace(settings, trigger_us=parse_duration(trigger))
            if schedule is not None:
                settings = replace(settings, schedule=schedule)
            if join is not None:
                settings = replace(settings, join=join)
            if bins is not None:
                settings = replace(settings, bins=bins)
            if metrics is not None:
                settings = replace(settings, metrics=metrics)
            given = {"shedding": shedding, "backlog": backlog, "objective": objective}
            settings = replace(settings, **{key: word for key, word in given.items() if word is not None})  # type: ignore[arg-type]
        except ValueError as exc:
            raise SpecError(str(exc)) from exc
        if not self._model.queries:
            raise SpecError(f"pipeline '{self._model.name}' has no query to run; add one with query(name, sql)")
        return start(
            replace(self._model, engine=settings),
            spark,
            frames=self._frames,
            tables=self._tables,
            functions=self._functions,
            steps=self._steps,
            checkpoint=None if checkpoint is None else _absolute(checkpoint),
            once=once,
            flush=flush,
            hooks=hooks,
        )


def _columns_of(rows: DataFrame, what: str) -> tuple[Column, ...]:
    if rows.isStreaming:
        raise SpecError(f"{what} is a streaming DataFrame; declare it as a stream")
    return tuple(Column(f.name, parse_type(f.dataType.simpleString())) for f in rows.schema.fields)


def _shedding(query: str, given: str | dict[str, Any] | None) -> QueryShedding:
    if isinstance(given, dict) and given.keys() <= {"scale", "protect"}:
        return QueryShedding(scale=bool(given.get("scale")), protect=given.get("protect"))
    if given not in (None, "never"):
        raise SpecError(Problem(f"shedding is 'never', or has scale and protect, not {given!r}", query=query))
    return QueryShedding(never=given == "never")


def _absolute(path: str) -> str:
    return absolute(path, Path.cwd())
