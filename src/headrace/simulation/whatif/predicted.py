"""What a simulated pipeline did, in spans of time, and whether it holds its lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from headrace.model import JoinDecision, KeyedDecision, Pipeline
from headrace.policies import UNPACED_S
from headrace.simulation.whatif.scenario import Scenario
from headrace.simulation.whatif.world import Beat, World
from headrace.units import SECOND_US

__all__ = ["Prediction", "Span", "predict"]

# Spans of time that a prediction is told in.
SPANS = 10
# Lag that grows from one quarter of the time to the next by this factor is not held, nor is one of so many epochs.
GROWS, MOST_EPOCHS = 1.2, 5.0


@dataclass(frozen=True)
class Span:
    """Some time: rows per second that came and that were used, the most seconds that a row waited for its epoch to
    end, how long epochs took, the part of the rows that was shed, and what was decided.

    By query, `shed` is the part of its rows that it lost, and `late_s` how far its answers were behind at worst. `ways`
    has how joins ran, `moves` counts mini-partitions that changed bins.
    """

    from_s: float
    to_s: float
    epochs: int
    came_per_s: float
    used_per_s: float
    lag_s: float
    epoch_s: float
    shed: Mapping[str, float]
    moves: int
    ways: Mapping[str, str]
    late_s: Mapping[str, float]

    @property
    def most_shed(self) -> float:
        return max(self.shed.values(), default=0.0)

    @property
    def latest_s(self) -> float:
        return max(self.late_s.values(), default=0.0)


@dataclass(frozen=True)
class Prediction:
    """What is predicted; numbers without a span are those of the second half of the time.

    `steps_s` are the mean seconds of an epoch's parts, and of the pause before it. `changes` are decisions that changed
    something, with the time in seconds and the reason.
    """

    pipeline: str
    hosts: int
    rates: Mapping[str, float]
    minutes: float
    came_per_s: float
    used_per_s: float
    lag_s: float
    worst_lag_s: float
    epoch_s: float
    trigger_s: float
    steps_s: Mapping[str, float]
    shed: Mapping[str, float]
    moves: int
    ways: Mapping[str, str]
    late_s: Mapping[str, float]
    holds: bool
    why: str
    spans: tuple[Span, ...]
    changes: tuple[tuple[float, str], ...]
    guesses: tuple[str, ...]
    beats: tuple[Beat, ...]


def predict(
    pipeline: Pipeline, world: World, scenario: Scenario, beats: Sequence[Beat], guesses: Sequence[str]
) -> Prediction:
    """The account of the epochs that were played."""
    end_s = 60 * scenario.minutes
    edges = [end_s * number / SPANS for number in range(SPANS + 1)]
    spans = tuple(_span(beats, begin, end) for begin, end in pairwise(edges))
    # Where an epoch takes longer than half of the time, it is what there is to tell of.
    settled = [beat for beat in beats if beat.began_s >= end_s / 2] or list(beats[-1:])
    half = _span(beats, settled[0].began_s if settled else 0.0, end_s)
    target_s = max(
        world.trigger_s or UNPACED_S, world.machine.gap_s + world.machine.rest_s + world.machine.absorb.of(0)
    )
    why = _why_not_held(beats, end_s, MOST_EPOCHS * target_s)
    steps = {step: fmean(beat.record.observed.steps_s[step] for beat in settled) for step in _STEPS if settled}
    return Prediction(
        pipeline.name,
        len(world.speeds),
        {name: each.rate for name, each in world.arrivals.items()},
        scenario.minutes,
        half.came_per_s,
        half.used_per_s,
        fmean(beat.lag_s for beat in settled) if settled else 0.0,
        half.lag_s,
        half.epoch_s,
        world.trigger_s,
        {"pause": world.machine.gap_s, **steps},
        half.shed,
        sum(span.moves for span in spans),
        half.ways,
        half.late_s,
        not why,
        why or "the lag does not grow",
        spans,
        _changes(beats),
        tuple(guesses),
        tuple(beats),
    )


_STEPS = ("admit", "absorb", "answer")


def _span(beats: Sequence[Beat], begin_s: float, end_s: float) -> Span:
    mine = [beat for beat in beats if begin_s <= beat.began_s < end_s]
    if not mine:
        return Span(begin_s, end_s, 0, 0.0, 0.0, 0.0, 0.0, {}, 0, {}, {})
    before = next((beat for beat in reversed(beats) if beat.began_s < begin_s), None)
    # From the end of the epoch before to that of the last of these.
    first_s = before.ended_s if before is not None else 0.0
    used = _used(mine[-1]) - (0 if before is None else _used(before))
    if before is None:
        used = _used(mine[-1]) - _used(mine[0]) + sum(mine[0].record.observed.rows.values())
    ways = {name: _way(node) for name, node in mine[-1].decision.nodes.items() if isinstance(node, JoinDecision)}
    late: dict[str, float] = {}
    for beat in mine:
        for name, us in beat.record.behind_us.items():
            late[name] = max(late.get(name, 0.0), us / SECOND_US)
    return Span(
        begin_s,
        end_s,
        len(mine),
        sum(sum(beat.came.values()) for beat in mine)
        / max(1e-9, mine[-1].began_s - (before.began_s if before else 0.0)),
        used / max(1e-9, mine[-1].ended_s - first_s),
        max(beat.lag_s for beat in mine),
        fmean(beat.ended_s - beat.began_s for beat in mine),
        _shed(mine),
        sum(len(n.moves) for beat in mine for n in beat.decision.nodes.values() if isinstance(n, KeyedDecision)),
        ways,
        late,
    )


def _used(beat: Beat) -> int:
    return sum((entry.used for entry in beat.record.ledger.values()), 0)


def _way(decision: JoinDecision) -> str:
    way = decision.way
    return f"{way.way} {way.split}" if way.split else way.way


def _shed(beats: Sequence[Beat]) -> dict[str, float]:
    """By query the part of its rows that was left out, of queries that lost any."""
    lost, rows = dict[str, float](), 0
    for beat in beats:
        came, decided = sum(beat.record.observed.rows.values()), beat.decision.shedding
        rows += came
        parts = dict(decided.kept) if decided is not None and decided.sheds else {}
        joins = beat.decision.flows.items()
        parts |= {name: node.way.keep for name, node in joins if isinstance(node, JoinDecision) and node.way.keep < 1}
        for name, kept in parts.items():
            lost[name] = lost.get(name, 0.0) + came * (1 - kept)
    return {name: each / rows for name, each in lost.items() if each > 0}


def _why_not_held(beats: Sequence[Beat], end_s: float, most_s: float) -> str:
    """Why the lag is not held; empty if it is."""
    third, last = (
        [beat for beat in beats if end_s * part <= beat.began_s < end_s * (part + 0.25)] for part in (0.5, 0.75)
    )
    if not beats:
        return "no rows came for an epoch"
    if not last or not third:
        return "" if beats[-1].lag_s <= most_s else "an epoch takes longer than a quarter of the time"
    if shed := _shed([*third, *last]):
        worst = max(shed, key=lambda name: shed[name])
        return f"'{worst}' loses {shed[worst]:.0%} of its rows"
    lags = [fmean(beat.lag_s for beat in part) for part in (third, last)]
    if lags[1] > GROWS * lags[0]:
        return f"the lag grows from {lags[0]:.1f} s to {lags[1]:.1f} s"
    if lags[1] > most_s:
        return f"rows wait {lags[1]:.1f} s, more than {most_s:.1f} s"
    late = [max((us for beat in part for us in beat.record.behind_us.values()), default=0) for part in (third, last)]
    if late[1] > GROWS * late[0] + most_s * SECOND_US:
        return f"answers are later and later, {late[1] / SECOND_US:.1f} s at the end"
    return ""


def _changes(beats: Sequence[Beat]) -> tuple[tuple[float, str], ...]:
    """Decisions that change something, each with its reason."""
    found, before = list[tuple[float, str]](), dict[str, object]()
    for beat in beats:
        for name, node in beat.decision.flows.items():
            if isinstance(node, JoinDecision) and before.get(name) != _way(node):
                found.append((beat.began_s, f"join '{name}' runs as {node.reason}"))
                before[name] = _way(node)
            if isinstance(node, KeyedDecision) and node.moves:
                found.append((beat.began_s, f"{len(node.moves)} moves of '{name}': {node.reason}"))
        shed = beat.decision.shedding
        acting = () if shed is None else shed.acting
        if shed is not None and before.get("*") != acting:
            if acting or "*" in before:
                found.append((beat.began_s, f"against overload: {shed.reason}" if acting else "the overload is over"))
            before["*"] = acting
        intake = beat.decision.intake
        if intake is not None and before.get("intake") not in (None, intake):
            found.append((beat.began_s, f"another intake: {intake.reason}"))
        before["intake"] = intake
    return tuple(found)
