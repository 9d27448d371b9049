"""What a pipeline needs around it, looked for before Spark starts: formats, inputs, folders it can write to, jars."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import Problem, SpecError
from headrace.language import (
    FILE_SINKS,
    FILE_SOURCES,
    PATHLESS_SINKS,
    SINKS,
    SOURCES,
    TABLES,
    local_path,
    near_miss,
    near_setting,
    nearest,
)
from headrace.model import (
    ANOTHER,
    ANOTHER_HINT,
    MARKER,
    OTHERS,
    OTHERS_HINT,
    FolderMark,
    Kind,
    Pipeline,
    Query,
    why_another,
)
from headrace.planning import with_kept
from headrace.policies.required import REQUIRED

__all__ = ["Finding", "look_around"]

# Settings, and variables of the environment, by which Spark gets more than its own jars.
_BRINGING = ("spark.jars", "spark.driver.extraClassPath", "spark.plugins", "spark.submit.pyFiles")
_BRINGING_VARIABLES = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "PYSPARK_SUBMIT_ARGS")
# From the first of these on a path stands for several.
_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to be said of a pipeline, and the keys of its file under which it stands; a note is no problem."""

    problem: Problem
    keys: tuple[str, ...]
    note: bool = False


def look_around(pipeline: Pipeline, conf: Mapping[str, str]) -> Iterator[Finding]:
    """What is missing or unknown, as far as can be told from here; `conf` are Spark's settings."""
    brought = bool(pipeline.engine.packages or pipeline.engine.jars)
    brought |= any(key.startswith(_BRINGING) for key in conf) or any(map(os.environ.get, _BRINGING_VARIABLES))
    for key, value in conf.items():
        if key in REQUIRED and value.lower() != REQUIRED[key].lower():
            hint = f"leave it out; Headrace sets it to {REQUIRED[key]}"
            yield Finding(Problem(f"answers depend on {key}, which cannot be {value}", hint=hint), ("engine", "conf"))
        elif (near := near_setting(key)) is not None:
            text = f"Spark has no setting {key} and would pass over it in silence; did you mean {near}?"
            yield Finding(Problem(text), ("engine", "conf"), note=True)
    for stream in pipeline.streams:
        source, keys = stream.source, ("streams", stream.name, "source")
        if source is None:
            continue
        what = f"stream '{stream.name}' is read as '{source.format}'"
        yield from _format(what, source.format, SOURCES, brought, (*keys, "format"), None)
        yield from _options(f"stream '{stream.name}'", source.format, source.options, (*keys, "options"), reads=True)
        why = None if source.path is None or source.format not in FILE_SOURCES else _no_input(source.path)
        if why is not None:
            yield Finding(Problem(f"stream '{stream.name}' reads {source.path}, {why}"), (*keys, "path"))
    for table in pipeline.tables:
        source, keys = table.source, ("tables", table.name, "source")
        if source is None:
            continue
        what = f"table '{table.name}' is read as '{source.format}'"
        yield from _format(what, source.format, TABLES, brought, (*keys, "format"), None)
        why = None if source.path is None or source.format not in FILE_SOURCES else _no_table(source.path)
        if why is not None:
            yield Finding(Problem(f"table '{table.name}' reads {source.path}, {why}"), (*keys, "path"))
    for query in pipeline.queries:
        sink, keys = query.sink, ("queries", query.name, "sink")
        what = f"results are written as '{sink.format}'"
        yield from _format(what, sink.format, SINKS, brought, (*keys, "format"), query.name)
        yield from _options(f"the sink of query '{query.name}'", sink.format, sink.options, (*keys, "options"))
        why = None if sink.path is None or sink.format in PATHLESS_SINKS else _not_writable(sink.path)
        if why is not None:
            yield Finding(Problem(f"results go to {sink.path}, {why}", query=query.name), (*keys, "path"))
            continue
        try:
            # Where rows may be shed, results have columns that say so.
            results = with_kept(query, pipeline.engine)
        except SpecError as wrong:
            yield from (Finding(problem, ("queries", query.name)) for problem in wrong.problems)
            continue
        if pipeline.network is None and sink.format in FILE_SINKS and sink.path is not None:
            found = _other_results(sink.path, pipeline.engine.checkpoint, results)
            if found is not None:
                yield Finding(found, ("queries", query.name))
    checkpoint = pipeline.engine.checkpoint
    why = None if checkpoint is None else _not_writable(checkpoint)
    if why is not None:
        yield Finding(Problem(f"the checkpoint is {checkpoint}, {why}"), ("engine", "checkpoint"))
    for jar in pipeline.engine.jars:
        place = local_path(jar)
        if place is not None and not place.is_file():
            yield Finding(Problem(f"there is no jar {jar}", hint="check the path"), ("engine", "jars"))


def _other_results(path: str, checkpoint: str | None, query: Query) -> Problem | None:
    """What a folder holds that a query's results do not go with: those of another checkpoint, or other columns."""
    place, state = local_path(path), None if checkpoint is None else local_path(checkpoint)
    if place is None or state is None:
        return None
    try:
        mark = FolderMark.from_json((place / MARKER).read_bytes())
        known = state / "headrace.json"
        owner = json.loads(known.read_bytes())["id"] if known.exists() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # without a mark the folder is nobody's; what cannot be read is said when the run starts
    if mark.checkpoint != owner:
        whose = f"another checkpoint ({mark.checkpoint[:12]})"
        return Problem(f"{path} {OTHERS.format(whose)}", query=query.name, hint=OTHERS_HINT)
    if mark.columns is None or not any(place.glob("**/epoch-*")):
        return None
    now = tuple((output.name, str(output.type)) for output in query.finish.outputs)
    # Functions whose types only Spark knows are judged when the run starts.
    why = why_another(mark.columns, now, [text for _, text in now if Kind.UNKNOWN.value in text])
    return None if why is None else Problem(ANOTHER.format(path, why), query=query.name, hint=ANOTHER_HINT)


def _options(
    whose: str, format_: str, options: Iterable[tuple[str, str]], keys: tuple[str, ...], reads: bool = False
) -> Iterator[Finding]:
    """Options that are nearly, and not quite, what the format knows."""
    for key, _ in options:
        near = near_miss(key, format_, reads)
        if near is not None:
            text = f"{whose} has the option '{key}', which '{format_}' does not know; did you mean '{near}'?"
            yield Finding(Problem(text), (*keys, key), note=True)


def _format(
    what: str, name: str, known: frozenset[str], brought: bool, keys: tuple[str, ...], query: str | None
) -> Iterator[Finding]:
    if name in known:
        return
    hint = nearest(name, sorted(known))
    if brought or "." in name:
        text = f"{what}, which is no format of Spark's own; it has to come with the packages or jars that Spark gets"
        yield Finding(Problem(text, query=query, hint=hint), keys, note=True)
    else:
        text = f"{what}, and there is no such format"
        yield Finding(
            Problem(text, query=query, hint=f"{hint}; one of a package needs engine: {{packages: [...]}}"), keys
        )


def _no_input(path: str) -> str | None:
    """Why files cannot be read from a path; None if they can, or if that shows only later."""
    pattern = _PATTERN.search(path)
    place = local_path(path[: pattern.start()].rpartition("/")[0] if pattern else path)
    if place is None:
        return None
    if not place.exists():
        return "which is not there"
    if not place.is_dir():
        what = "a file" if place.is_file() else "a device or a pipe"
        return f"which is {what}: Spark streams from folders; give its folder, or a pattern that fits it"
    return None if os.access(place, os.R_OK | (os.X_OK if place.is_dir() else 0)) else "which cannot be read"


def _no_table(path: str) -> str | None:
    """Why a table cannot be read from a path; None if it can, or if that shows only later."""
    place = None if _PATTERN.search(path) else local_path(path)
    return "which is not there" if place is not None and not place.exists() else None


def _not_writable(path: str) -> str | None:
    """Why a folder cannot be made or written to; None if it can, or if that shows only later."""
    place = local_path(path)
    if place is None:
        return None
    there = next((each for each in (place, *place.parents) if os.path.lexists(each)), Path("/"))
    if not there.is_dir():
        return "which is a file, not a folder" if there == place else f"but {there} is a file, not a folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"but {there} cannot be written to"
