"""Gives results that Spark makes to a sink, and counts them on the way if the pipeline expects something of them.

Counting takes no second pass: Spark counts in the job that writes. An epoch that is repeated is counted before it is
given, since a sink that has it already reads nothing; and so it is for sinks that may read results more than once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.engine.sinks.choose import FormatSink, PythonSink
from headrace.engine.sinks.files import renewed
from headrace.engine.sinks.sink import Sink
from headrace.model import RESULTS, Counts, Query, ResultTest

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["give"]

_NAME = "headrace"


def give(query: Query, sink: Sink, results: DataFrame, epoch: int, replay: bool, counts: dict[str, Counts]) -> int:
    """Writes an epoch's results; rows as far as they are known. `counts` gets those of a query with expectations."""
    if not query.expect:
        return sink.write(results, epoch, replay) or 0
    tests = [each for each in query.expect if isinstance(each.test, ResultTest)]
    counted = _counted([each.test.sql for each in tests if isinstance(each.test, ResultTest)])
    named = results.alias(RESULTS)
    if replay or isinstance(sink, FormatSink | PythonSink):
        rows, *broken = (int(value) for value in named.agg(*counted).collect()[0])
        sink.write(results, epoch, replay)
    else:
        observed = named.observe(_NAME, *counted)
        # The plan that counts is this one, whatever the sink makes of its rows.
        plan = observed._jdf.queryExecution()
        sink.write(renewed(observed, plan), epoch, replay)
        found = plan.observedMetrics().apply(_NAME)
        rows, *broken = (int(found.getLong(i)) for i in range(len(counted)))
    counts[query.name] = Counts(rows, {each.text: n for each, n in zip(tests, broken, strict=True)})
    return rows


def _counted(conditions: Sequence[str]) -> list[Column]:
    """All results, and by condition those for which it is not true."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    otherwise = (F.count_if(F.expr(f"NOT coalesce({sql}, false)")).alias(f"c{i}") for i, sql in enumerate(conditions))
    return [F.count(F.lit(1)).alias(_NAME), *otherwise]
