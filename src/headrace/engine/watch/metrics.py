"""What operators watch: numbers of a run as Prometheus reads them. `docs/metrics.md` says what each means."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.engine.state.checkpoint import Manifest
from headrace.hiding import hide
from headrace.model import EpochDecision, JoinDecision, KeyedDecision, KeyedMeasures, KeyedState, LinkMeter

__all__ = ["METRICS", "Metric", "MetricsPage", "waiting_rows"]

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, `counter` or `gauge`, and a sentence with the unit and range of its values."""

    name: str
    kind: str
    help: str


METRICS = (
    Metric("headrace_epoch", "gauge", "Number of the last committed epoch, from 0; -1 before the first."),
    Metric("headrace_epochs_total", "counter",
           "Epochs committed by this process; replayed is true if an earlier process had begun them."),
    Metric("headrace_rows_total", "counter",
           "Rows of a stream since its checkpoint began, by fate: used, late, shed, rejected; together all that came."),
    Metric("headrace_epoch_rows", "gauge", "Rows of a stream in the last epoch."),
    Metric("headrace_epoch_seconds", "gauge", "Seconds the last epoch took."),
    Metric("headrace_epoch_step_seconds", "gauge",
           "Seconds a step of the last epoch took: admit, absorb, advance, flow or answer."),
    Metric("headrace_epoch_jobs", "gauge", "Spark jobs of the last epoch."),
    Metric("headrace_lag_rows", "gauge", "Rows of a stream that waited in Kafka when Spark last looked."),
    Metric("headrace_lag_seconds", "gauge",
           "Seconds from a stream's greatest event time to the wall time of the last epoch; below 0 if ahead."),
    Metric("headrace_watermark_timestamp_seconds", "gauge", "A stream's watermark in seconds since 1970."),
    Metric("headrace_intake_rows", "gauge", "Rows an epoch may take from sources whose intake the engine sets."),
    Metric("headrace_intake_bytes", "gauge", "Bytes of files an epoch may take where the engine sets their intake."),
    Metric("headrace_query_answers_total", "counter",
           "Windows of a query answered since its checkpoint began; none where results come with the rows."),
    Metric("headrace_query_rows_total", "counter",
           "Result rows of a query since its checkpoint began, where the sink counts them."),
    Metric("headrace_query_late_seconds", "gauge",
           "Seconds of event time a query is behind its deadline, or its rows wait for their results, from 0."),
    Metric("headrace_query_period_seconds", "gauge",
           "Seconds of event time between successive answers of a query, averaged."),
    Metric("headrace_query_failed", "gauge", "1 if a query has failed, else 0."),
    Metric("headrace_waiting_seconds", "gauge",
           "Seconds of work that rows of the coming epoch, and rows behind it, would take; what fits is an epoch's."),
    Metric("headrace_shed_rows_total", "counter", "Rows that an edge has left out since it began to shed."),
    Metric("headrace_query_shed_rows_total", "counter",
           "Rows that a query has lost since its checkpoint began, where the pipeline sheds."),
    Metric("headrace_query_kept", "gauge", "Part of its rows that a query keeps in the last decision, 0 to 1."),
    Metric("headrace_unmet_epochs_total", "counter",
           "Epochs since the checkpoint began that were not as expected, by owner (stream or query) and expectation."),
    Metric("headrace_state_bytes", "gauge", "Bytes of the state files that the last manifest names."),
    Metric("headrace_state_files", "gauge", "State files that the last manifest names."),
    Metric("headrace_keyed_state_bytes", "gauge", "Bytes of state that a row window or a function keeps by key."),
    Metric("headrace_keyed_moves_total", "counter", "Mini-partitions of a query moved since its checkpoint began."),
    Metric("headrace_keyed_moved_bytes_total", "counter", "Bytes of state moved since its checkpoint began."),
    Metric("headrace_keyed_waiting", "gauge", "Mini-partitions whose rows waited in the last epoch, from 0."),
    Metric("headrace_keyed_spilled", "gauge", "Mini-partitions whose state was on disk in the last epoch, from 0."),
    Metric("headrace_link_bytes_total", "counter", "Bytes of files that a link has carried since it began."),
    Metric("headrace_link_rows_total", "counter", "Rows or panes that a link has carried since it began."),
    Metric("headrace_link_epoch", "gauge", "The last epoch of this site that was sent along a link; -1 before any."),
    Metric("headrace_link_waiting_bytes", "gauge", "Bytes of a link that its receiver has not taken, from 0."),
    Metric("headrace_link_waiting_epochs", "gauge", "Epochs of a link that its receiver has not taken, from 0."),
    Metric("headrace_decisions_total", "counter",
           "Decisions of this process by kind: idle, flush, schedule, intake, flow, shedding; what stays counts once."),
)  # fmt: skip


def waiting_rows(sources: Sequence[Any], streams: Sequence[str]) -> dict[str, int]:
    """Rows by stream that Kafka has and the last batch did not take; `sources` are those of Spark's progress."""
    found: dict[str, int] = {}
    for source, stream in zip(sources, streams, strict=False):
        if len(sources) == len(streams) and "Kafka" in source.description:
            # Of a batch that was planned before a crash Spark says "null".
            latest, end = json.loads(source.latestOffset or "null"), json.loads(source.endOffset or "null") or {}
            if not latest:
                continue
            found[stream] = sum(
                max(0, offset - end.get(topic, {}).get(partition, 0))
                for topic, partitions in latest.items()
                for partition, offset in partitions.items()
            )
    return found


class MetricsPage:
    """Takes note of decisions and manifests as they come, and writes the page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._manifest: Manifest | None = None
        self._decision: EpochDecision | None = None
        self._epochs = {"false": 0, "true": 0}
        self._decisions: dict[str, int] = {}
        self.lag: Callable[[], Mapping[str, int]] = dict
        self.links: Callable[[], Sequence[LinkMeter]] = list

    def decided(self, decision: EpochDecision) -> None:
        """To be called with every decision."""
        with self._lock:
            before = None if self._decision is None else _kinds(self._decision)
            for kind, value in _kinds(decision).items():
                changed = bool(value) and (before is None or before[kind] != value)
                self._decisions[kind] = self._decisions.get(kind, 0) + changed
            self._decision = decision

    def committed(self, manifest: Manifest) -> None:
        """To be called with every manifest."""
        with self._lock:
            self._manifest = manifest
            self._epochs["true" if manifest.observed.replay else "false"] += 1

    def text(self) -> str:
        """The page: every metric with its help and its samples, if it has any."""
        lag_rows, links = self.lag(), self.links()
        with self._lock:
            samples = {**dict(self._samples(lag_rows)), **dict(_of_links(links))}
        lines: list[str] = []
        for metric in METRICS:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.kind}"]
            lines += [f"{metric.name}{_labels(labels)} {value!r}" for labels, value in samples.get(metric.name, ())]
        return "\n".join(lines) + "\n"

    def _samples(self, lag_rows: Mapping[str, int]) -> Iterator[tuple[str, list[Sample]]]:
        manifest = self._manifest
        yield "headrace_epoch", [({}, -1 if manifest is None else manifest.epoch)]
        yield "headrace_epochs_total", [({"replayed": key}, count) for key, count in self._epochs.items()]
        yield "headrace_decisions_total", _by("kind", self._decisions.items())
        yield "headrace_lag_rows", _by("stream", lag_rows.items())
        if self._decision is not None and self._decision.intake is not None:
            yield "headrace_intake_rows", [({}, self._decision.intake.rows)]
            yield "headrace_intake_bytes", [({}, self._decision.intake.bytes)]
        if self._decision is not None and (shedding := self._decision.shedding) is not None:
            yield "headrace_waiting_seconds", [({}, shedding.waiting_s)]
            if shedding.sheds:
                yield "headrace_query_kept", _by("query", shedding.kept.items())
        if manifest is not None and manifest.epoch >= 0:
            yield from _of_streams(manifest)
            yield from _of_epoch(manifest)
            yield from _of_queries(manifest)
            yield from _of_keyed_state(manifest)
            yield from _of_expectations(manifest)


def _of_streams(manifest: Manifest) -> Iterator[tuple[str, list[Sample]]]:
    fates = ("used", "late", "shed", "rejected")
    ledger, clocks = manifest.ledger.items(), manifest.clocks.items()
    yield (
        "headrace_rows_total",
        [({"stream": name, "fate": fate}, getattr(entry, fate)) for name, entry in ledger for fate in fates],
    )
    yield "headrace_shed_rows_total", _by("edge", ((edge, each.shed) for edge, each in manifest.edges.items()))
    wall_us = manifest.observed.wall_us
    behind = ((name, (wall_us - c.last_us) / 1e6) for name, c in clocks if c.last_us is not None)
    yield "headrace_lag_seconds", _by("stream", behind)
    marks = ((name, c.watermark_us / 1e6) for name, c in clocks if c.watermark_us is not None)
    yield "headrace_watermark_timestamp_seconds", _by("stream", marks)


def _of_epoch(manifest: Manifest) -> Iterator[tuple[str, list[Sample]]]:
    observed = manifest.observed
    yield "headrace_epoch_rows", _by("stream", observed.rows.items())
    yield "headrace_epoch_seconds", [({}, observed.seconds)]
    yield "headrace_epoch_step_seconds", _by("step", observed.steps_s.items())
    yield "headrace_epoch_jobs", [({}, observed.jobs)]
    yield "headrace_state_bytes", [({}, sum(chunk.bytes for chunk in manifest.chunks))]
    yield "headrace_state_files", [({}, len(manifest.chunks))]


def _of_queries(manifest: Manifest) -> Iterator[tuple[str, list[Sample]]]:
    queries, lost = manifest.queries.items(), manifest.shedding.queries.items()
    yield "headrace_query_answers_total", _by("query", ((name, q.answers) for name, q in queries))
    yield "headrace_query_rows_total", _by("query", ((name, q.rows) for name, q in queries))
    yield "headrace_query_late_seconds", _by("query", ((name, q.waiting_us / 1e6) for name, q in queries))
    gaps = ((name, q.gap_us / 1e6) for name, q in queries if q.gap_us is not None)
    yield "headrace_query_period_seconds", _by("query", gaps)
    yield "headrace_query_failed", _by("query", ((name, float(q.failed is not None)) for name, q in queries))
    yield "headrace_query_shed_rows_total", _by("query", ((name, each.shed) for name, each in lost))


def _of_keyed_state(manifest: Manifest) -> Iterator[tuple[str, list[Sample]]]:
    keyed = {name: state for name, state in manifest.flows.items() if isinstance(state, KeyedState)}
    measures = manifest.observed.flows.items()
    waiting = {name: each.waiting for name, each in measures if isinstance(each, KeyedMeasures)}
    yield "headrace_keyed_state_bytes", _by("query", ((q, sum(s.state_bytes)) for q, s in keyed.items()))
    yield "headrace_keyed_moves_total", _by("query", ((q, s.moves) for q, s in keyed.items()))
    yield "headrace_keyed_moved_bytes_total", _by("query", ((q, s.moved_bytes) for q, s in keyed.items()))
    yield "headrace_keyed_waiting", _by("query", ((q, waiting.get(q, 0)) for q in keyed))
    spilled = ((q, sum(len(each.spilled) for each in s.residence)) for q, s in keyed.items())
    yield "headrace_keyed_spilled", _by("query", spilled)


def _of_expectations(manifest: Manifest) -> Iterator[tuple[str, list[Sample]]]:
    unmet: list[Sample] = [({"owner": e.owner, "expectation": e.text}, e.unmet) for e in manifest.expected]
    yield "headrace_unmet_epochs_total", unmet


def _of_links(links: Sequence[LinkMeter]) -> Iterator[tuple[str, list[Sample]]]:
    numbers = {"bytes_total": "bytes", "rows_total": "rows", "epoch": "epoch", "waiting_bytes": "waiting_bytes",
               "waiting_epochs": "waiting_epochs"}  # fmt: skip
    for name, attribute in numbers.items():
        ends = ({"link": m.link.id, "from": m.link.sender, "to": m.link.receiver} for m in links)
        values = (float(getattr(each, attribute)) for each in links)
        yield f"headrace_link_{name}", list(zip(ends, values, strict=True))


def _kinds(decision: EpochDecision) -> dict[str, Any]:
    schedule = decision.schedule
    return {
        "idle": tuple(idle.stream for idle in decision.idle),
        "flush": decision.flush,
        "schedule": None if schedule is None else [(group.group, dict(group.periods_us)) for group in schedule.groups],
        "intake": decision.intake,
        "flow": {name: _flow(decided) for name, decided in decision.flows.items()},
        "shedding": None if decision.shedding is None or not decision.shedding.sheds else decision.shedding.keep,
    }


def _flow(decided: JoinDecision | KeyedDecision) -> Any:
    """A decision without what differs though nothing else was decided: why, and what was known."""
    if isinstance(decided, JoinDecision):
        return replace(decided.way, reason="", costs_s={}), decided.slices
    return replace(decided, reason="", ends_round=False)


def _by(label: str, values: Iterable[tuple[str, float]]) -> list[Sample]:
    return [({label: name}, value) for name, value in values]


def _labels(labels: Mapping[str, str]) -> str:
    """Labels as the page writes them.

    >>> _labels({"stream": 'a "b"'})
    '{stream="a \\\\"b\\\\""}'
    """
    if not labels:
        return ""
    shown = (hide(text) for text in labels.values())
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for text in shown)
    return "{" + ",".join(f'{name}="{text}"' for name, text in zip(labels, quoted, strict=True)) + "}"
