"""Streams, queries and settings as the checkpoint keeps them for a replay, and read again under the guard of a file.

A checkpoint is not trusted to name code or places. SQL out of it is bound as a file's is, options of sources out of it
are those that change how a text is read, and whoever opens a sink or calls a function asks the pipeline of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headrace.errors import CorruptStateError, SpecError
from headrace.hiding import holds_secret
from headrace.language import (
    bind_query,
    bind_selection,
    given_of,
    is_name,
    is_text_option,
    parse_type,
    stream_expected,
    with_expectations,
)
from headrace.model import (
    Column,
    DataType,
    EngineSettings,
    Kind,
    Query,
    QueryTerms,
    SettingTerms,
    SinkSpec,
    SinkTerms,
    Source,
    Step,
    StepFunction,
    StepTerms,
    Stream,
    StreamTerms,
    Table,
    TableTerms,
)

__all__ = [
    "query_of",
    "query_terms",
    "setting_terms",
    "sink_terms",
    "stream_of",
    "stream_terms",
    "table_of",
    "table_terms",
    "type_of",
]

Pairs = tuple[tuple[str, str], ...]


def stream_terms(stream: Stream) -> StreamTerms:
    """What the checkpoint keeps of a stream."""
    source = stream.source
    value = None if source is None else source.value
    return StreamTerms(
        _pairs(stream.columns),
        stream.time,
        stream.lateness_us,
        stream.ahead_us,
        stream.idle_us,
        () if source is None else _of_texts(source.options),
        None if value is None else replace(value, options=_of_texts(value.options)),
        given_of(stream.expect),
        stream.as_panes,
        None if stream.select is None else stream.select.text,
        () if stream.select is None else _pairs(stream.select.reads),
    )


def stream_of(name: str, terms: StreamTerms, now: Stream | None = None) -> Stream:
    """A stream as it was, read from where it is read now; CorruptStateError if no pipeline can declare it."""
    names = [column for column, _ in (*terms.columns, *terms.reads)]
    if not is_name(name) or any("`" in column for column in names) or terms.time not in dict(terms.columns):
        raise CorruptStateError(f"the checkpoint describes a stream {name!r} that no pipeline can declare")
    select, columns = None, tuple(Column(column, type_of(text)) for column, text in terms.columns)
    if terms.select is not None:
        try:
            select = bind_selection(terms.select, _columns(terms.reads), name)
        except SpecError as problem:
            raise CorruptStateError(f"the checkpoint describes what no pipeline can declare: {problem}") from problem
        columns = tuple(column for column, _ in select.columns)
    return Stream(
        name,
        columns,
        terms.time,
        terms.lateness_us,
        terms.ahead_us,
        terms.idle_us,
        None if now is None or now.source is None else _source(terms, now.source),
        expect=stream_expected(terms.expect),
        as_panes=terms.as_panes,
        select=select,
    )


def table_terms(table: Table) -> TableTerms:
    """What the checkpoint keeps of a table, beside the snapshots of it."""
    return TableTerms(_pairs(table.columns))


def table_of(name: str, terms: TableTerms) -> Table:
    """A table as it was, of which there are snapshots; CorruptStateError if no pipeline can declare it."""
    if not is_name(name):
        raise CorruptStateError(f"the checkpoint describes a table {name!r} that no pipeline can declare")
    return Table(name, _columns(terms.columns))


def _source(terms: StreamTerms, now: Source) -> Source:
    others = tuple((key, text) for key, text in now.options if not is_text_option(key))
    value = None if terms.value is None else replace(terms.value, options=_of_texts(terms.value.options))
    return replace(now, options=(*others, *_of_texts(terms.reading)), value=value)


def query_terms(query: Query) -> QueryTerms:
    """What the checkpoint keeps of a query."""
    step = query.root.step if isinstance(query.root, Step) else None
    told = None
    if step is not None:
        told = StepTerms(step.function, _pairs(step.state), _pairs(step.results), step.version, step.migration)
    return QueryTerms(
        query.sql, sink_terms(query.sink), query.priority, query.weight, query.lifetime_us, told, query.shedding,
        given_of(query.expect),
    )  # fmt: skip


def query_of(
    name: str,
    terms: QueryTerms,
    streams: Mapping[str, Stream],
    sink: SinkSpec,
    tables: Mapping[str, Table] | None = None,
) -> Query:
    """A query as it was; SpecError if its SQL is refused, ValueError if it is none that a pipeline can have."""
    step = terms.step
    function = None
    if step is not None:
        function = StepFunction(
            step.function, _columns(step.state), _columns(step.results), step.version, step.migration
        )
    bound = bind_query(
        name,
        terms.sql,
        streams,
        sink=sink,
        priority=terms.priority,
        weight=terms.weight,
        step=function,
        shedding=terms.shedding,
        tables=tables,
    )
    return with_expectations(replace(bound, lifetime_us=terms.lifetime_us), terms.expect)


def sink_terms(sink: SinkSpec) -> SinkTerms:
    """What the checkpoint keeps of a sink.

    >>> terms = sink_terms(SinkSpec("jdbc", None, (("user", "ann"), ("password", "x1"))))
    >>> terms.options, terms.withheld
    ((('user', 'ann'),), ('password',))
    """
    secret = tuple(key for key, text in sink.options if holds_secret(key, text))
    hidden = sink.path is not None and holds_secret("path", sink.path)
    shown = tuple((key, text) for key, text in sink.options if key not in secret)
    withheld = (*(("path",) if hidden else ()), *secret)
    path = None if hidden else sink.path
    return SinkTerms(sink.format, path, shown, withheld, sink.partition_by, sink.key, sink.latest)


def setting_terms(engine: EngineSettings, tuning: Mapping[str, str]) -> SettingTerms:
    """What the checkpoint keeps of settings."""
    return SettingTerms(
        engine.trigger_us,
        engine.schedule,
        engine.join,
        engine.shedding,
        engine.backlog,
        engine.objective,
        dict(tuning),
    )


def type_of(text: str) -> DataType:
    """A type out of a checkpoint; ValueError if it is none."""
    return DataType(Kind.UNKNOWN) if text == Kind.UNKNOWN.value else parse_type(text)


def _pairs(columns: tuple[Column, ...]) -> Pairs:
    return tuple((column.name, str(column.type)) for column in columns)


def _columns(pairs: Pairs) -> tuple[Column, ...]:
    if any("`" in name for name, _ in pairs):
        raise ValueError("no column of a table has a ` in its name")
    return tuple(Column(name, type_of(text)) for name, text in pairs)


def _of_texts(options: Pairs) -> Pairs:
    return tuple((key, text) for key, text in options if is_text_option(key) and not holds_secret(key, text))
