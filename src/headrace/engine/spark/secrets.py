"""Options that take their values from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

from headrace.errors import Problem, SpecError
from headrace.hiding import REFERENCE, Options, remember
from headrace.model import Pipeline

__all__ = ["remember_options", "resolve"]


def resolve(options: Options, owner: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Options with each `${env:NAME}` replaced by that variable; SpecError names those that are not set.

    >>> resolve([("user", "ann"), ("password", "${env:PW}")], "query 'q'", {"PW": "x"})
    {'user': 'ann', 'password': 'x'}
    """
    known = os.environ if environment is None else environment
    options = tuple(options)
    if environment is None:
        remember(options, known)
    problems = [
        Problem(f"{owner}: option '{key}' asks for the environment variable {name}, which is not set",
                hint=f"set {name} where Headrace is started")
        for key, text in options for name in REFERENCE.findall(text) if name not in known
    ]  # fmt: skip
    if problems:
        raise SpecError(problems)
    return {key: REFERENCE.sub(lambda match: known[match.group(1)], text) for key, text in options}


def remember_options(pipeline: Pipeline) -> None:
    """Has this process hide whatever is secret in the options of a pipeline: sources, sinks, Spark's settings."""
    read = [*(stream.source for stream in pipeline.streams), *(table.source for table in pipeline.tables)]
    sources = [source for source in read if source is not None]
    paths = [("path", path) for path in (pipeline.engine.checkpoint, *(s.path for s in sources)) if path is not None]
    sinks = [query.sink for query in pipeline.queries]
    paths += [("path", sink.path) for sink in sinks if sink.path is not None]
    given = [*(source.options for source in sources), *(sink.options for sink in sinks)]
    for options in (paths, pipeline.engine.conf, *given):
        remember(options, os.environ)
