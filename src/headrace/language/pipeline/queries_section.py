"""The `queries:` and `include:` of a pipeline file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from headrace.errors import Problem, SpecError
from headrace.language.ddl import parse_schema
from headrace.language.expectations import Given, with_expectations
from headrace.language.pipeline.expect_section import read_expect
from headrace.language.pipeline.files import read_text
from headrace.language.pipeline.formats import PATHLESS_SINKS, SINKS, spelled
from headrace.language.pipeline.options import read_options
from headrace.language.pipeline.paths import is_name, read_path, why_no_path
from headrace.language.pipeline.yaml_nodes import Document, Value
from headrace.language.sql.binder import bind_query
from headrace.language.sql.report import Place
from headrace.language.sql.unfold import queries_read
from headrace.language.words import shown
from headrace.model import (
    LEAST_WEIGHT,
    MOST_PRIORITY,
    MOST_WEIGHT,
    Column,
    Query,
    QueryShedding,
    SinkSpec,
    StepFunction,
    Stream,
    Table,
)

__all__ = ["leaves_directory", "read_queries"]

_KEYS = {
    "sql": "one SELECT",
    "sink": "where results go",
    "priority": "greater goes first",
    "weight": "its share when load must be shed",
    "shedding": "never, or how what is left of its rows is told",
    "lifetime": "how much event time it runs for",
    "expect": "what its results should be like in every epoch",
    "function": "module:name of a function with state of its own",
    "state": "columns of that state",
    "results": "columns of that function's results",
    "version": "of that state, from 1",
    "migration": "module:name of what changes an older state",
}
_SINK_KEYS = {
    "format": "a Spark batch format, console or memory",
    "path": "where it writes",
    "options": "the sink's options",
    "partition_by": "columns by whose values files lie in folders",
    "mode": "append, or upsert: one result of each key",
    "key": "columns of that key",
    "latest": "the column that says which of a key's results is the latest",
}
_SHEDDING_KEYS = {
    "scale": "whether sums and counts are scaled to all rows",
    "protect": "the GROUP BY column whose rare values are kept",
}
# More files than this under one include, or more text in all, is a wrong pattern.
MOST_INCLUDED = 10_000
MOST_INCLUDED_BYTES = 20_000_000


@dataclass(frozen=True, slots=True)
class _Written:
    """A query as written, with the place of its SQL."""

    name: str
    sql: str
    sink: SinkSpec
    file: str
    line: int
    place: Place | None = None
    priority: int = 0
    weight: float = 1.0
    lifetime: str | None = None
    step: StepFunction | None = None
    shedding: QueryShedding = field(default_factory=QueryShedding)
    expect: tuple[Given, ...] = ()
    expect_line: int | None = None


def read_queries(
    entries: Mapping[str, Value],
    streams: Mapping[str, Stream],
    tables: Mapping[str, Table],
    base: Path,
    output: str,
    document: Document,
) -> tuple[Query, ...]:
    """Every query that could be bound; problems are noted in the document."""
    found: dict[str, _Written] = {}
    names: dict[str, str] = {}
    for written in (*_listed(entries.get("queries"), base, output), *_included(entries.get("include"), base, output)):
        if written.name.lower() in names:
            document.problems.append(
                Problem(
                    f"query '{written.name}' stands twice, as '{names[written.name.lower()]}' too",
                    written.file,
                    written.line,
                    hint="names ignore case; rename one",
                )
            )
            continue
        names[written.name.lower()] = written.name
        found[written.name] = written
    bound = _bound(found, streams, tables, document)
    return tuple(bound[name] for name in found if name in bound)


def _bound(
    found: Mapping[str, _Written], streams: Mapping[str, Stream], tables: Mapping[str, Table], document: Document
) -> dict[str, Query]:
    """Queries by name, each bound after those that it reads; one that reads what could not be bound is no news."""
    reads = {name: tuple(queries_read(written.sql, found, (*streams, *tables))) for name, written in found.items()}
    bound: dict[str, Query] = {}
    wrong: set[str] = set()

    def bind(name: str, path: tuple[str, ...]) -> None:
        if name in bound or name in wrong:
            return
        written = found[name]
        if name in path:
            circle = (*path[path.index(name) :], name)
            steps = " reads ".join(f"'{each}'" for each in circle)
            hint = "one of them must read streams alone"
            document.problems.append(
                Problem(f"queries read each other in a circle: {steps}", written.file, written.line, hint=hint)
            )
            wrong.update(circle)
            return
        for other in reads[name]:
            bind(other, (*path, name))
        if wrong.intersection((name, *reads[name])):
            wrong.add(name)
            return
        try:
            query = bind_query(
                name, written.sql, streams, sink=written.sink, priority=written.priority, weight=written.weight,
                lifetime=written.lifetime, step=written.step, shedding=written.shedding, file=written.file,
                line=written.line, place=written.place, queries=bound, tables=tables,
            )  # fmt: skip
            bound[name] = with_expectations(query, written.expect, written.file, written.expect_line)
        except SpecError as exc:
            wrong.add(name)
            document.problems.extend(exc.problems)

    for name in found:
        bind(name, ())
    return bound


def _default_sink(name: str, output: str) -> SinkSpec:
    return SinkSpec("parquet", f"{output.rstrip('/')}/{name}")


def _listed(section: Value | None, base: Path, output: str) -> Iterator[_Written]:
    for name, value in section.mapping().items() if section is not None else ():
        if not is_name(name):
            value.document.add(
                f"{shown(name)} cannot name a query", value.line, "use letters, digits and _, such as top_talkers"
            )
            continue
        entries = value.mapping(_KEYS)
        if "sql" not in entries:
            if isinstance(value.content, dict):
                value.document.add(f"query '{name}' has no sql", value.line, "write sql: SELECT ...")
            continue
        sql = entries["sql"].text()
        sink = _read_sink(entries.get("sink"), name, base, output)
        priority = entries["priority"].whole(-MOST_PRIORITY, MOST_PRIORITY) if "priority" in entries else 0
        weight = entries["weight"].number(LEAST_WEIGHT, MOST_WEIGHT) if "weight" in entries else 1.0
        lifetime = _read_lifetime(entries.get("lifetime"))
        known = len(value.document.problems)
        shedding, expect = _read_shedding(entries.get("shedding")), read_expect(entries.get("expect"))
        step = _read_step(entries, name)
        # A query whose function could not be read would be taken for one without.
        if sql is not None and len(value.document.problems) == known:
            place = entries["sql"].place
            yield _Written(
                name, sql, sink, value.document.file, place(0)[0], place, priority or 0, weight or 1.0, lifetime, step,
                shedding, expect, entries["expect"].line if "expect" in entries else None,
            )  # fmt: skip


def _read_step(entries: Mapping[str, Value], name: str) -> StepFunction | None:
    """The function of a query, with the tables it is declared with; problems are noted."""
    given = [key for key in ("function", "state", "results", "version", "migration") if key in entries]
    if not given:
        return None
    first = entries[given[0]]
    missing = [key for key in ("function", "state", "results") if key not in entries]
    if missing:
        first.document.add(
            f"query '{name}' has {given[0]}, and no {missing[0]}",
            first.line,
            "a function needs function, state and results: see docs/state.md",
        )
        return None
    function = entries["function"].word()
    version = entries["version"].whole() if "version" in entries else 1
    migration = entries["migration"].word() if "migration" in entries else None
    tables: dict[str, tuple[Column, ...]] = {}
    for key in ("state", "results"):
        text = entries[key].text()
        try:
            tables[key] = parse_schema(text or "")
        except ValueError as exc:
            entries[key].document.add(f"{key} of query '{name}': {exc}", entries[key].line)
    if function is None or version is None or len(tables) < 2:
        return None
    for key, text in (("function", function), ("migration", migration)):
        if text is not None and not re.fullmatch(r"[\w.]+:[\w.]+", text):
            entries[key].wrong("module:name")
            return None
    try:
        return StepFunction(function, tables["state"], tables["results"], version, migration)
    except ValueError as exc:
        first.document.add(str(exc), first.line)
        return None


def _read_shedding(value: Value | None) -> QueryShedding:
    if value is None:
        return QueryShedding()
    if isinstance(value.content, dict):
        entries = value.mapping(_SHEDDING_KEYS)
        protect = entries["protect"].word() if "protect" in entries else None
        return QueryShedding(scale="scale" in entries and entries["scale"].truth(), protect=protect)
    if value.content != "never":
        value.wrong("never, or a mapping", "leave it out for a query that may be shed where the engine sheds")
    return QueryShedding(never=True)


def _read_lifetime(value: Value | None) -> str | None:
    lifetime_us = None if value is None else value.duration_us()
    if value is None or lifetime_us is None:
        return None
    if lifetime_us <= 0:
        value.wrong("longer than nothing", "leave it out for a query that runs on")
        return None
    return str(value.content)


def _read_sink(value: Value | None, name: str, base: Path, output: str) -> SinkSpec:
    default = _default_sink(name, output)
    if value is None:
        return default
    entries = {"format": value} if isinstance(value.content, str) else value.mapping(_SINK_KEYS)
    word = entries["format"].word() if "format" in entries else "parquet"
    path = read_path(entries["path"], base) if "path" in entries else None
    options = read_options(entries.get("options"))
    if word is None:
        return default
    kind = spelled(word, SINKS)
    if path is None and kind not in PATHLESS_SINKS:
        path = default.path
    upserts = _upserts(entries, value)
    key = _names(entries.get("key")) if upserts else ()
    latest = entries["latest"].word() if "latest" in entries else "window_end" if upserts else None
    return SinkSpec(kind, path, options, _names(entries.get("partition_by")), key, latest)


def _upserts(entries: Mapping[str, Value], value: Value) -> bool:
    """Whether a sink keeps one result of each key; noted if the file says so by halves."""
    mode = entries["mode"].word() if "mode" in entries else "append"
    if mode not in ("append", "upsert", None):
        entries["mode"].wrong("append or upsert")
    elif mode == "upsert" and "key" not in entries:
        value.document.add(f"{value.path} has mode: upsert, and no key", value.line, "write key: [host]")
    elif mode == "append" and (given := [key for key in ("key", "latest") if key in entries]):
        entries[given[0]].document.add(
            f"{value.path} has {given[0]}, and appends all results", entries[given[0]].line, "write mode: upsert"
        )
    return mode == "upsert"


def _names(value: Value | None) -> tuple[str, ...]:
    """One name, or a list of names."""
    items = [] if value is None else value.items() if isinstance(value.content, list) else [value]
    return tuple(word for item in items if (word := item.word()) is not None)


def leaves_directory(pattern: str) -> bool:
    """Whether an include reaches beyond the directory of its file."""
    return Path(pattern).is_absolute() or ".." in Path(pattern).parts


def _included(section: Value | None, base: Path, output: str) -> Iterator[_Written]:
    if section is None:
        return
    for value in section.items() if isinstance(section.content, list) else [section]:
        pattern = value.word()
        if pattern is None:
            continue
        if leaves_directory(pattern):
            value.document.add(
                f"include {shown(pattern)} leaves the directory of the file", value.line, "write queries/*.sql"
            )
            continue
        why = why_no_path(pattern) or ("** stands in it more than once" if pattern.count("**") > 1 else None)
        if why is not None:
            value.document.add(f"include: {why}", value.line, "write queries/*.sql")
            continue
        try:
            # Folders are passed over; whatever else cannot be read is said.
            files = sorted(islice((file for file in base.glob(pattern) if not file.is_dir()), MOST_INCLUDED + 1))
        except (ValueError, NotImplementedError, OSError) as exc:
            value.document.add(f"include {shown(pattern)}: {exc}", value.line, "write queries/*.sql")
            continue
        if not files or len(files) > MOST_INCLUDED:
            count = f"more than {MOST_INCLUDED}" if files else "no"
            value.document.add(f"include {shown(pattern)} matches {count} files", value.line, f"looked in {base}")
            continue
        left = MOST_INCLUDED_BYTES
        for file in files:
            for written in _read_file(file, value, base, output):
                left -= len(written.sql)
                if left < 0:
                    value.document.add(
                        f"include {shown(pattern)} has more than {MOST_INCLUDED_BYTES} characters", value.line
                    )
                    return
                yield written


def _read_file(file: Path, value: Value, base: Path, output: str) -> Iterator[_Written]:
    name = file.stem
    place = str(Path(value.document.file).parent / file.relative_to(base))
    if not is_name(name):
        value.document.add(
            f"{shown(file.name)} cannot name a query", value.line, "use letters, digits and _, such as top_talkers.sql"
        )
        return
    try:
        sql = read_text(file)
    except (OSError, ValueError) as exc:
        value.document.add(f"cannot read {place}: {getattr(exc, 'strerror', None) or exc}", value.line)
        return
    yield _Written(name, sql, _default_sink(name, output), place, 1)
