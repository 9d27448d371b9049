"""Decides on the driver whether a failure is a query's, the state's, or the machines'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from headrace.engine.spark.thrown import chain_of, judged
from headrace.errors import EngineError, HeadraceError, StateError
from headrace.kernels import border
from headrace.model import Failure, Fault, shown

__all__ = ["blamed", "cause_of", "failure_of", "raise_if_not_a_querys", "stopped"]

T = TypeVar("T")


def failure_of(error: Exception, names: Mapping[str, str] | None = None) -> Failure:
    """Whose failure an error is: by its class, or by those of the Java exceptions behind it.

    `names` says what columns in Spark's expressions stand for.
    """
    from py4j.protocol import Py4JError

    if isinstance(error, HeadraceError):
        return border.failure_of(error)
    try:
        chain = chain_of(error)
        failure = judged(chain, names) if chain else border.failure_of(error)
        gone = failure.is_a_querys and ((isinstance(error, Py4JError) and not chain) or _is_stopped())
    except (Py4JError, OSError):
        gone = True
    return Failure(Fault.MACHINE, f"Spark is gone: {_first_line(error)}") if gone else failure


def _is_stopped() -> bool:
    """Whether there was a Spark, and its context has ended: whatever fails then is no query's failure."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or context._jsc is None:
        return SparkContext._gateway is not None
    return bool(context._jsc.sc().isStopped())


def raise_if_not_a_querys(error: Exception) -> None:
    """Raises an error that is no query's, as one of ours."""
    failure = failure_of(error)
    if failure.is_a_querys:
        return
    if isinstance(error, HeadraceError):
        raise error
    raise failure.error() from error


def cause_of(error: Exception, names: Mapping[str, str] | None = None) -> str:
    """The cause with which a query fails; an error that is no query's is raised."""
    raise_if_not_a_querys(error)
    return failure_of(error, names).text


def blamed(job: Callable[[], T]) -> T:
    """What a job gives whose tasks report the failures of queries; one that is no query's is raised as ours."""
    try:
        return job()
    except Exception as error:
        raise_if_not_a_querys(error)
        raise


def stopped(error: Exception) -> HeadraceError:
    """The error with which a run ends: one about state as it is, anything else as an EngineError."""
    if isinstance(error, StateError):
        return error
    failure = failure_of(error)
    found = failure.error()
    if not isinstance(found, StateError):
        found = EngineError(f"the run stopped: {shown(failure.text)}")
    found.__cause__ = error
    return found


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
