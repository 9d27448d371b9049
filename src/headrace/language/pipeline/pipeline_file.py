"""A pipeline file to a Pipeline: every problem at once, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.errors import Problem, SpecError
from headrace.language.pipeline.engine_section import read_engine
from headrace.language.pipeline.files import read_text
from headrace.language.pipeline.network_section import read_network
from headrace.language.pipeline.paths import absolute, read_path
from headrace.language.pipeline.places import clashes
from headrace.language.pipeline.queries_section import leaves_directory, read_queries
from headrace.language.pipeline.sites_section import read_links, read_placement, read_sites
from headrace.language.pipeline.streams_section import read_streams
from headrace.language.pipeline.tables_section import read_tables
from headrace.language.pipeline.yaml_nodes import Document, Value, read_yaml
from headrace.model import EngineSettings, Pipeline, Query, WindowAggregate
from headrace.units import SECOND_US, format_duration

__all__ = ["include_patterns", "line_of", "load_pipeline"]

# Answers a day above which a window is named.
MANY_PER_DAY = 10_000
DAY_US = 86_400 * SECOND_US
# Of a pipeline's name, which stands in titles and labels.
MOST_CHARACTERS = 200

_KEYS = {
    "name": "the pipeline's name",
    "streams": "what comes in",
    "tables": "what rows are looked up in",
    "queries": "what is asked",
    "include": "more queries, one per .sql file",
    "output": "where results go unless a sink says otherwise",
    "engine": "how it runs",
    "sites": "where it runs",
    "network": "how far sites are apart",
    "placement": "how operators are placed",
    "links": "where sites exchange what they have for each other",
}


def load_pipeline(path: str | Path) -> Pipeline:
    """The pipeline a YAML file describes; raises SpecError with every problem found."""
    place = Path(path)
    document = Document(str(path))
    root = _read(place, document)
    if root is None:
        raise SpecError(document.problems)
    base = place.resolve().parent
    entries = root.mapping(_KEYS)
    name = _read_name(entries["name"]) if "name" in entries else None
    if "streams" not in entries:
        document.add("streams is missing", 1, "declare at least one stream under `streams:`")
    output = (read_path(entries["output"], base) if "output" in entries else None) or absolute("out", base)
    streams = read_streams(entries.get("streams"), base)
    tables = read_tables(entries.get("tables"), streams, base)
    known = {stream.name: stream for stream in streams}
    queries = read_queries(entries, known, {table.name: table for table in tables}, base, output, document)
    for section in ("streams", "tables"):
        _forget_unread(document, entries.get(section))
    engine = read_engine(entries.get("engine"), base)
    declared = read_sites(entries.get("sites"), entries.get("streams"), streams, document)
    surveyed = read_network(entries.get("network"), declared, base, entries.get("sites"), document)
    placement = read_placement(entries.get("placement"), declared, document)
    links = read_links(entries.get("links"), declared, base, document)
    if not queries and not document.problems:
        document.add("no queries", 1, "add `queries:` or `include: queries/*.sql`")
    found = clashes(streams, queries, engine.checkpoint, tables=tables)
    for problem in found:
        keys = ("engine", "checkpoint") if problem.query is None else ("queries", problem.query, "sink")
        document.problems.append(replace(problem, file=document.file, line=line_of(place, *keys)))
    if document.problems:
        raise SpecError(document.problems)
    return Pipeline(
        name=(name or place.stem).strip(),
        streams=streams,
        queries=queries,
        output=output,
        engine=engine,
        sites=surveyed.sites,
        placement=placement,
        links=links,
        network=surveyed.network,
        notes=(*surveyed.notes, *_without_effect(queries, engine), *_answered_often(queries)),
        tables=tables,
    )


def _without_effect(queries: Sequence[Query], engine: EngineSettings) -> Iterator[str]:
    """What a file says of shedding that nothing follows from, since its engine sheds nothing."""
    if engine.shedding == "off":
        for query in queries:
            if query.shedding.scale:
                yield f"query '{query.name}' has nothing to scale while shedding is off: no row is lost"


def _answered_often(queries: Sequence[Query]) -> Iterator[str]:
    """Windows that give more answers than anybody reads; a wrong unit looks like this."""
    for query in queries:
        window = query.root.window if isinstance(query.root, WindowAggregate) else None
        if window is not None and (per_day := DAY_US // window.slide_us) > MANY_PER_DAY:
            of = " for each of its keys" if isinstance(query.root, WindowAggregate) and query.root.keys else ""
            yield (
                f"query '{query.name}' answers every {format_duration(window.slide_us)} of event time: {per_day:,} "
                f"times a day{of}; a longer SLIDE, or a longer window where it has none, gives fewer answers"
            )


def include_patterns(path: str | Path) -> tuple[str, ...]:
    """What a pipeline file includes, as it is written; nothing when the file cannot be read."""
    try:
        root = _read(Path(path), Document(str(path)))
    except SpecError:
        return ()
    section = root.content.get("include") if root is not None and isinstance(root.content, dict) else None
    values = [] if section is None else section.content if isinstance(section.content, list) else [section]
    patterns = (value.content for value in values)
    return tuple(p for p in patterns if isinstance(p, str) and p.strip() and not leaves_directory(p))


def line_of(path: str | Path, *keys: str) -> int | None:
    """On which line of a pipeline file the innermost of these keys stands that is there."""
    document = Document(str(path))
    try:
        value = _read(Path(path), document)
    except SpecError:
        return None
    line = None
    for key in keys:
        value = value.content.get(key) if value is not None and isinstance(value.content, dict) else None
        line = line if value is None else value.line
    return line


def _read(place: Path, document: Document) -> Value | None:
    try:
        text = read_text(place)
    except (OSError, ValueError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise SpecError(Problem(f"cannot read the file: {why}", file=document.file)) from exc
    return read_yaml(text, document)


def _read_name(value: Value) -> str | None:
    name = value.word()
    if name is not None and (len(name) > MOST_CHARACTERS or not name.isprintable()):
        value.wrong(f"a name of at most {MOST_CHARACTERS} printable characters")
        return None
    return name


def _forget_unread(document: Document, section: Value | None) -> None:
    """A stream or table that is declared but wrong has been reported: that no query finds it is no second mistake."""
    declared = section.content if section is not None and isinstance(section.content, dict) else {}
    noise = {f"unknown stream '{name}'" for name in declared}
    document.problems[:] = [problem for problem in document.problems if problem.message not in noise]
