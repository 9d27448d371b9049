"""A prediction for people: a summary in sentences and a table over time; for machines: plain values and rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.simulation.whatif.predicted import Prediction, Span
from headrace.simulation.whatif.simulate import Found

__all__ = ["COLUMNS", "epoch_rows", "found_text", "prediction_json", "prediction_text"]

# Decisions that are told; all of them are in the rows and in JSON.
MOST_CHANGES = 12
COLUMNS = ("epoch", "began_s", "ended_s", "lag_s", "came", "rows", "waiting", "used", "shed", "admit_s", "absorb_s",
           "answer_s", "moves", "ways", "late_s")  # fmt: skip


def prediction_text(found: Prediction) -> str:
    """Sentences, a table, what was decided, and what was taken for granted."""
    lines = [*_sentences(found), "", *_table(found.spans)]
    if found.changes:
        lines += ["", "decisions"]
        lines += [f"  {at / 60:6.2f} min  {text}" for at, text in found.changes[:MOST_CHANGES]]
        if len(found.changes) > MOST_CHANGES:
            lines.append(f"  ... and {len(found.changes) - MOST_CHANGES} more (--json, --out)")
    if found.guesses:
        lines += ["", "taken for granted", *(f"  {guess}" for guess in found.guesses)]
    return "\n".join(lines)


def found_text(what: str, found: Found) -> str:
    """The limit that was searched for, in a sentence."""
    of = found.prediction
    if not found.holds:
        return f"no {what} holds the lag: with {_setting(of)}, {of.why} ({found.tried} simulations)"
    limit = "the highest rate that holds its lag is" if what == "rate" else "the fewest hosts that hold the lag are"
    value = f"{sum(of.rates.values()):,.0f} rows/s" if what == "rate" else f"{of.hosts}"
    return f"{limit} {value} ({found.tried} simulations)"


def _sentences(of: Prediction) -> list[str]:
    holds = "holds its lag" if of.holds else f"does not hold its lag: {of.why}"
    lines = [
        f"With {_setting(of)}, pipeline '{of.pipeline}' {holds}.",
        f"It uses {of.used_per_s:,.0f} of {of.came_per_s:,.0f} rows/s. At the end of its epoch the oldest row has "
        f"waited {of.lag_s:.2f} s on average and {of.worst_lag_s:.2f} s at most.",
        f"An epoch takes {of.epoch_s:.2f} s"
        + (f", triggered every {of.trigger_s:g} s: " if of.trigger_s else ": ")
        + ", ".join(f"{seconds:.2f} s {_STEP[step]}" for step, seconds in of.steps_s.items())
        + ".",
    ]
    lines += [f"Query '{name}' loses {part:.1%} of its rows." for name, part in of.shed.items()]
    lines += [f"Join '{name}' runs as {way}." for name, way in of.ways.items()]
    if of.moves:
        lines.append(f"Mini-partitions move {of.moves} times.")
    late = {name: seconds for name, seconds in of.late_s.items() if seconds > 0}
    if late:
        worst = max(late, key=lambda name: late[name])
        lines.append(f"Answers of {len(late)} queries come late, those of '{worst}' by {late[worst]:.1f} s at worst.")
    return lines


_STEP = {"pause": "before it", "admit": "deciding and committing", "absorb": "absorbing rows", "answer": "answering"}


def _setting(of: Prediction) -> str:
    rates = ", ".join(f"{rate:,.0f} rows/s of '{name}'" for name, rate in of.rates.items())
    return f"{rates} on {of.hosts} hosts"


def _table(spans: Sequence[Span]) -> list[str]:
    head = (
        f"{'minutes':>15} {'rows/s in':>11} {'rows/s used':>12} {'lag s':>8} {'epoch s':>8} {'shed':>6} {'moves':>6} "
    )
    lines = [head + f"{'late s':>7}  joins"]
    for span in spans:
        ways = ", ".join(f"{name} {way}" for name, way in span.ways.items())
        time = f"{span.from_s / 60:.2f}-{span.to_s / 60:.2f}"
        if not span.epochs:
            lines.append(f"{time:>15} {'(an epoch that began before goes on)' if span.from_s else '(no rows came)'}")
            continue
        lines.append(
            f"{time:>15} {span.came_per_s:>11,.0f} {span.used_per_s:>12,.0f} {span.lag_s:>8.2f} {span.epoch_s:>8.2f} "
            f"{span.most_shed:>6.0%} {span.moves:>6} {span.latest_s:>7.1f}  {ways}".rstrip()
        )
    return lines


def prediction_json(of: Prediction) -> dict[str, Any]:
    """Plain values: the summary, the table, decisions with their reasons, and what was taken for granted."""
    return {
        "pipeline": of.pipeline,
        "hosts": of.hosts,
        "rates_rows_per_s": {name: round(rate, 3) for name, rate in of.rates.items()},
        "minutes": of.minutes,
        "holds": of.holds,
        "why": of.why,
        **_numbers(of),
        "steps_s": {step: round(seconds, 4) for step, seconds in of.steps_s.items()},
        "spans": [{"from_s": s.from_s, "to_s": s.to_s, "epochs": s.epochs, **_numbers(s)} for s in of.spans],
        "decisions": [{"at_s": round(at, 3), "what": text} for at, text in of.changes],
        "guesses": list(of.guesses),
    }


def _numbers(of: Prediction | Span) -> dict[str, Any]:
    return {
        "in_rows_per_s": round(of.came_per_s, 1),
        "used_rows_per_s": round(of.used_per_s, 1),
        "lag_s": round(of.lag_s, 3),
        **({"worst_lag_s": round(of.worst_lag_s, 3)} if isinstance(of, Prediction) else {}),
        "epoch_s": round(of.epoch_s, 3),
        "shed": {name: round(part, 4) for name, part in of.shed.items()},
        "moves": of.moves,
        "joins": dict(of.ways),
        "late_s": {name: round(seconds, 3) for name, seconds in of.late_s.items()},
    }


def epoch_rows(of: Prediction) -> list[tuple[object, ...]]:
    """A row per epoch, as `COLUMNS` names them."""
    rows: list[tuple[object, ...]] = []
    for beat in of.beats:
        record, steps = beat.record, beat.record.observed.steps_s
        entries = record.ledger.values()
        joins = [(name, node.way.way) for name, node in beat.decision.flows.items() if hasattr(node, "way")]
        moves = sum(len(node.moves) for node in beat.decision.flows.values() if hasattr(node, "moves"))
        rows.append(
            (
                beat.decision.epoch, round(beat.began_s, 3), round(beat.ended_s, 3), round(beat.lag_s, 3),
                sum(beat.came.values()), sum(record.observed.rows.values()), sum(beat.waiting.values()),
                sum(e.used for e in entries), sum(e.shed for e in entries),
                steps["admit"], steps["absorb"], steps["answer"], moves,
                " ".join(f"{name}={way}" for name, way in joins), max(record.behind_us.values(), default=0) / 1e6,
            )
        )  # fmt: skip
    return rows
