"""Python packages that a pipeline needs and an installation may lack."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec

from headrace.errors import Problem
from headrace.model import Query

__all__ = ["NEEDS_DELTALAKE", "lacking_packages"]

NEEDS_DELTALAKE = "a delta sink needs the package deltalake: pip install 'headrace[delta]'"


def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def lacking_packages(queries: Iterable[Query], is_there: Callable[[str], bool] = _is_installed) -> list[Problem]:
    """What is missing for whose sinks, with the command that brings it."""
    lacking = [query.name for query in queries if query.sink.format == "delta"]
    return [Problem(NEEDS_DELTALAKE, query=name) for name in lacking if not is_there("deltalake")]
