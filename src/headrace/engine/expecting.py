"""What an epoch's counts say of the streams and queries of which a pipeline expects something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.engine.operators.port import Made
from headrace.engine.standing import Standing
from headrace.kernels.absorb import Absorbed
from headrace.model import Counts, Entry, EpochDecision
from headrace.planning import AnswerPlan, FlowPlan, streams_read

__all__ = ["QUERY", "STREAM", "results_counted", "rows_counted"]

# How the owner of an expectation is told: what it is, and its name.
STREAM, QUERY = "stream ", "query "


def rows_counted(standing: Standing, decision: EpochDecision, absorbed: Absorbed) -> dict[str, Counts]:
    """By stream of which something is expected the rows of the epoch; a flush brings none, and is no epoch of rows."""
    if decision.flush is not None:
        return {}
    return {f"{STREAM}{s.name}": _counts(absorbed, s.name) for s in standing.streams if s.expect}


def _counts(absorbed: Absorbed, stream: str) -> Counts:
    entry = absorbed.counts[stream].entry if stream in absorbed.counts else Entry()
    return Counts(
        entry.rows_in, {"used": entry.used, "late": entry.late, "shed": entry.shed, "rejected": entry.rejected}
    )


def results_counted(
    standing: Standing, decision: EpochDecision, names: Iterable[str], absorbed: Absorbed, made: Made
) -> dict[str, Counts]:
    """By query of which something is expected its results of the epoch, if it was to have any.

    An aggregate was if windows of it were due, any other query if its streams brought rows or were flushed.
    """
    plans: Mapping[str, AnswerPlan | FlowPlan] = standing.workload.queries
    found = {}
    for name in names:
        plan = plans[name]
        if not plan.query.expect:
            continue
        if isinstance(plan, AnswerPlan):
            due = name in made.answered and made.answered[name].windows > 0
        else:
            used = any(s in absorbed.counts and absorbed.counts[s].entry.used for s in streams_read(plan))
            due = used or decision.flush is not None
        if due:
            found[f"{QUERY}{name}"] = made.counts.get(name, Counts(made.rows.get(name, 0)))
    return found
