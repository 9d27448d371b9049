"""Jars for tests: what a test needs and cannot have, it says in one line and is skipped."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from headrace.bench.jars import AVRO, BROKER, KAFKA, POSTGRES, fetch_jars
from headrace.errors import EnvironmentProblem


def need(packages: Iterable[str]) -> tuple[Path, ...]:
    """The jars of these packages; skips the test if they cannot be had."""
    return _need(tuple(packages))


@cache
def _found(packages: tuple[str, ...], transitive: bool) -> tuple[Path, ...] | str:
    try:
        return fetch_jars(packages, transitive)
    except EnvironmentProblem as problem:
        return str(problem)


def _need(packages: tuple[str, ...], transitive: bool = False) -> tuple[Path, ...]:
    found = _found(packages, transitive)
    if isinstance(found, str):
        pytest.skip(found)
    return found


def need_kafka() -> tuple[Path, ...]:
    """Spark's connector, if a broker can be had as well."""
    _need((BROKER,), transitive=True)
    return need(KAFKA)


def for_session() -> list[Path]:
    """The connectors that the session of all tests has; none if they cannot be had, and tests that need them skip."""
    with suppress(EnvironmentProblem):
        return list(fetch_jars((*KAFKA, *AVRO, *POSTGRES)))
    return []
