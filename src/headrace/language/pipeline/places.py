"""Where a pipeline reads and writes, and that no two of its parts do so in one place, however a place is spelled.

A place is a tuple of parts, the file system first: `file:///a/../b/`, `/b` and a link to it are all ("", "b"). One
place is inside another if it begins with it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import product

from headrace.errors import Problem
from headrace.model import Query, SinkSpec, Source, Stream, Table

__all__ = ["clashes", "place_of_path"]

Place = tuple[str, ...]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# Names of one store: Hadoop has had three clients for it.
_SAME_SCHEME = {"s3": "s3a", "s3n": "s3a"}
_GLOB = re.compile(r"[*?\[{]")
# What a file sink adds to its folder.
_RESULT = "epoch-000000000-000.x"


def place_of_path(path: str, default: str = "", resolve: Callable[[str], str] = os.path.realpath) -> Place:
    """The place of a path or URI; `default` is the file system of paths without a scheme, `resolve` follows links.

    >>> place_of_path("FILE:///srv/in/../out/"), place_of_path("S3://B@bucket/x//y")
    (('', 'srv', 'out'), ('s3a://bucket', 'x', 'y'))
    """
    match = _SCHEME.match(path)
    scheme, rest = (match.group(1).lower(), path[match.end() :]) if match else ("", path)
    if not match and default and not default.lower().startswith("file:"):
        return place_of_path(default.rstrip("/") + "/" + path.lstrip("/"), resolve=resolve)
    if scheme in ("", "file"):
        if rest.startswith("//") and scheme:
            rest = "/" + rest[2:].partition("/")[2]  # file://host/path: this host
        known, _, pattern = _before_glob(rest)
        return ("", *_parts(resolve(known)), *_parts(pattern))
    host, path_in_it = "", rest
    if rest.startswith("//"):
        host, _, path_in_it = rest[2:].partition("/")
    host = host.rpartition("@")[2].lower()
    scheme = _SAME_SCHEME.get(scheme, scheme)
    return (f"{scheme}://{host}", *_parts(posixpath.normpath("/" + path_in_it.lstrip("/"))))


def _before_glob(path: str) -> tuple[str, str, str]:
    """A path, cut before its first part that is a pattern."""
    parts = path.split("/")
    first = next((i for i, part in enumerate(parts) if _GLOB.search(part)), len(parts))
    return "/".join(parts[:first]) or "/", "/", "/".join(parts[first:])


def _parts(path: str) -> Place:
    return tuple(part for part in path.split("/") if part and part != ".")


def clashes(
    streams: Iterable[Stream],
    queries: Iterable[Query],
    checkpoint: str | None,
    default: str = "",
    resolve: Callable[[str], str] = os.path.realpath,
    tables: Iterable[Table] = (),
) -> list[Problem]:
    """Queries that would write where another writes, where state is kept, or where their own pipeline reads."""

    def place(path: str) -> Place:
        return place_of_path(path, default, resolve)

    streams, queries = tuple(streams), tuple(queries)
    problems, seen = list[Problem](), list[tuple[Place, Query]]()
    state = None if checkpoint is None else place(checkpoint)
    for query in queries:
        target = _target(query.sink, place)
        if target is None:
            continue
        other = next((q for known, q in seen if _nested(known, target)), None)
        if other is not None:
            problems.append(_shared(query, other))
        seen.append((target, query))
        if state is not None and _nested(state, target):
            hint = "keep results and state apart: give the query another path"
            problems.append(Problem(f"writes to {query.sink.path}, which the checkpoint {checkpoint} is in or around",
                                    query=query.name, hint=hint))  # fmt: skip
    for stream in streams:
        if state is not None and stream.source is not None and _takes_in(stream.source, state, place):
            text = (
                f"stream '{stream.name}' reads {stream.source.path}, which the checkpoint {checkpoint} is in or around"
            )
            problems.append(Problem(text, hint="keep input and state apart: give the checkpoint another path"))
    for query, table in product(queries, tables):
        if table.source is not None and _feeds_itself(query.sink, table.source, place):
            problems.append(Problem(f"writes where table '{table.name}' is read from", query=query.name,
                                    hint="give the query another place"))  # fmt: skip
    for query in queries:
        for stream in streams:
            if stream.source is not None and _feeds_itself(query.sink, stream.source, place):
                problems.append(Problem(f"writes where stream '{stream.name}' reads: its results would come in again",
                                        query=query.name, hint="give the query another place"))  # fmt: skip
    return problems


def _shared(query: Query, other: Query) -> Problem:
    options = dict(query.sink.options)
    what = query.sink.path or f"table {options.get('dbtable')}"
    inside = "" if query.sink.path in (None, other.sink.path) else f" ({other.sink.path})"
    return Problem(f"writes to {what}, as query '{other.name}' does{inside}", query=query.name,
                   hint="give each query a place of its own")  # fmt: skip


def _nested(one: Place, two: Place) -> bool:
    """Whether two places are the same, or one is inside the other."""
    least = min(len(one), len(two))
    return one[:least] == two[:least]


def _target(sink: SinkSpec, place: Callable[[str], Place]) -> Place | None:
    """What a sink has to itself. Queries may share a Kafka topic: it only grows, and messages name their query."""
    options = {key.lower(): text for key, text in sink.options}
    if sink.format == "jdbc":
        # Quotes, case and a default schema may make two names of one table: the last part, in small letters, decides.
        table = options.get("dbtable", "").rpartition(".")[2].strip('`"[] ').lower()
        return ("jdbc", _address(options.get("url", "")), table)
    return None if sink.path is None else place(sink.path)


def _address(url: str) -> str:
    """A database without what says who asks, and how.

    >>> _address("jdbc:postgresql://ann:x@Host:5432/db?ssl=true"), _address("JDBC:sqlserver://h;databaseName=d;user=x")
    ('jdbc:postgresql://host:5432/db', 'jdbc:sqlserver://h;databasename=d')
    """
    base, *rest = re.split(r"[;?&]", url.strip().lower())
    named = [part for part in rest if part.startswith(("database=", "databasename=", "currentschema="))]
    scheme, slashes, where = base.partition("://")
    return ";".join([f"{scheme}{slashes}{where.rpartition('@')[2]}".rstrip("/"), *named])


def _feeds_itself(sink: SinkSpec, source: Source, place: Callable[[str], Place]) -> bool:
    if sink.format == "kafka" and source.format == "kafka":
        mine, theirs = ({key.lower(): text for key, text in options} for options in (sink.options, source.options))
        servers = [set(_listed(each.get("kafka.bootstrap.servers", "").lower())) for each in (mine, theirs)]
        topic = mine.get("topic", "")
        return bool(servers[0] & servers[1]) and _reads(theirs, topic)
    if sink.path is None or source.path is None or sink.format in ("kafka", "jdbc"):
        return False
    return _covers(place(source.path), (*place(sink.path), _RESULT))


def _takes_in(source: Source, state: Place, place: Callable[[str], Place]) -> bool:
    """Whether a stream reads around a checkpoint, or inside it."""
    if source.path is None:
        return False
    read = place(source.path)
    return _covers(read, (*state, _RESULT)) or read[: len(state)] == state


def _covers(read: Place, written: Place) -> bool:
    """Whether a path, which may be a pattern, takes in a file."""
    pairs = zip(written, read, strict=False)
    return len(written) >= len(read) and all(fnmatchcase(part, _pattern(wanted)) for part, wanted in pairs)


def _pattern(part: str) -> str:
    """A part of a path as fnmatch reads it; alternatives in braces may be anything."""
    if not _GLOB.search(part):
        return "".join(f"[{char}]" if char in "*?[" else char for char in part)
    return re.sub(r"\{.*\}", "*", part)


def _reads(options: dict[str, str], topic: str) -> bool:
    if topic in _listed(options.get("subscribe", "")):
        return True
    try:
        return "subscribepattern" in options and re.fullmatch(options["subscribepattern"], topic) is not None
    except re.error:
        return False


def _listed(text: str) -> Iterator[str]:
    return (part.strip() for part in text.split(",") if part.strip())
