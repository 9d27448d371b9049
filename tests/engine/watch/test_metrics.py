"""The metrics page, read by Prometheus' own parser: every number is there, right, and documented with its unit."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import headrace as hr
from headrace.engine import Manifest
from headrace.engine.state.checkpoint import QueryState
from headrace.engine.watch.metrics import METRICS, MetricsPage, waiting_rows
from headrace.engine.watch.metrics_server import MetricsServer
from headrace.errors import EnvironmentProblem
from headrace.model import (
    SHEDDING,
    Entry,
    EpochDecision,
    Expected,
    Flush,
    Idle,
    Intake,
    JoinSample,
    JoinState,
    JoinWay,
    KeyedMeasures,
    Link,
    LinkMeter,
    Observed,
    Residence,
    Shed,
    SheddingDecision,
)
from headrace.planning import Shedding
from headrace.policies import StreamClock, begin

DOCS = Path(__file__).parents[3] / "docs"
SECOND = 1_000_000
MANIFEST = Manifest(
    epoch=7,
    batch=7,
    clocks={"s": StreamClock(0, 90 * SECOND, 80 * SECOND, 100 * SECOND), "silent": StreamClock()},
    ledger={"s": Entry(used=10, late=2, shed=1, rejected=3), "silent": Entry()},
    queries={"q": QueryState("SELECT", answers=4, rows=40, gap_us=2.5 * SECOND, waiting_us=SECOND),
             "broken": QueryState("SELECT", failed="a \"cause\"")},
    edges={"s>a": Shed(8, 6)},
    expected=(Expected("stream s", "late < 5 %", "warn", 7, 2),),
    observed=Observed(100 * SECOND, 0.5, {"absorb": 0.25}, 2, {"s": 5}, replay=True,
                      flows={"q": KeyedMeasures(0.1, (0.1, 0.1), (None, None), 0, (), 5, 2, 70)}),
    nodes={"q": replace(begin(2, 2), state_bytes=(30, 40), moves=3, moved_bytes=90,
                        residence=(Residence((1,)), Residence())),
           SHEDDING: Shedding(queries={"q": Shed(8, 6)}),
           "join": JoinState(JoinWay("hash", None, (), (0,), "why"), 1, False, (), None, JoinSample(), 0, (1.0,))},
)  # fmt: skip


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by the name of the metric and the values of its labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def decision(epoch: int, **parts: Any) -> EpochDecision:
    return EpochDecision(epoch, epoch, 0, epoch, ("q",), **parts)


def test_every_number_is_on_the_page() -> None:
    page = MetricsPage()
    page.lag = lambda: {"s": 12}
    page.links = lambda: [LinkMeter(Link("s_1", "rome", "hub", "s_1", "s"), 6, 900, 40, 2, 300)]
    page.decided(decision(6, idle=(Idle("silent", "60 s"),), intake=Intake(500, "first")))
    page.decided(
        decision(
            7,
            idle=(Idle("silent", "61 s"),),
            intake=Intake(900, "faster", 7_000_000),
            flush=Flush("asked"),
            nodes={SHEDDING: SheddingDecision("fit", ("shed",), {"s>a": 0.25}, {"q": 0.25}, 2.5)},
        )
    )
    page.committed(MANIFEST)
    found = samples(page.text())
    assert found == {
        "headrace_epoch": {(): 7},
        "headrace_epochs_total": {("false",): 0, ("true",): 1},
        "headrace_rows_total": {
            ("s", "used"): 10, ("s", "late"): 2, ("s", "shed"): 1, ("s", "rejected"): 3,
            ("silent", "used"): 0, ("silent", "late"): 0, ("silent", "shed"): 0, ("silent", "rejected"): 0,
        },
        "headrace_epoch_rows": {("s",): 5},
        "headrace_epoch_seconds": {(): 0.5},
        "headrace_epoch_step_seconds": {("absorb",): 0.25},
        "headrace_epoch_jobs": {(): 2},
        "headrace_lag_rows": {("s",): 12},
        "headrace_lag_seconds": {("s",): 10},
        "headrace_watermark_timestamp_seconds": {("s",): 80},
        "headrace_intake_rows": {(): 900},
        "headrace_intake_bytes": {(): 7_000_000},
        "headrace_query_answers_total": {("q",): 4, ("broken",): 0},
        "headrace_query_rows_total": {("q",): 40, ("broken",): 0},
        "headrace_query_late_seconds": {("q",): 1, ("broken",): 0},
        "headrace_query_period_seconds": {("q",): 2.5},
        "headrace_query_failed": {("q",): 0, ("broken",): 1},
        "headrace_waiting_seconds": {(): 2.5},
        "headrace_shed_rows_total": {("s>a",): 6},
        "headrace_query_shed_rows_total": {("q",): 6},
        "headrace_query_kept": {("q",): 0.25},
        "headrace_unmet_epochs_total": {("stream s", "late < 5 %"): 2},
        "headrace_state_bytes": {(): 0},
        "headrace_state_files": {(): 0},
        "headrace_keyed_state_bytes": {("q",): 70},
        "headrace_keyed_moves_total": {("q",): 3},
        "headrace_keyed_moved_bytes_total": {("q",): 90},
        "headrace_keyed_waiting": {("q",): 2},
        "headrace_keyed_spilled": {("q",): 1},
        "headrace_link_bytes_total": {("s_1", "rome", "hub"): 900},
        "headrace_link_rows_total": {("s_1", "rome", "hub"): 40},
        "headrace_link_epoch": {("s_1", "rome", "hub"): 6},
        "headrace_link_waiting_bytes": {("s_1", "rome", "hub"): 300},
        "headrace_link_waiting_epochs": {("s_1", "rome", "hub"): 2},
        "headrace_decisions_total": {
            ("idle",): 1, ("flush",): 1, ("schedule",): 0, ("intake",): 2, ("flow",): 0, ("shedding",): 1,
        },
    }  # fmt: skip
    assert found.keys() == {metric.name for metric in METRICS}, "no metric is without a test"


def test_before_the_first_epoch_there_is_a_page_too() -> None:
    assert samples(MetricsPage().text()) == {
        "headrace_epoch": {(): -1},
        "headrace_epochs_total": {("false",): 0, ("true",): 0},
    }


def test_every_metric_is_documented_with_its_kind() -> None:
    rows = re.findall(r"^\| `(headrace_\w+)` \| (\w+) \|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    assert rows == [(metric.name, metric.kind) for metric in METRICS]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_says_its_unit(metric: Any) -> None:
    named = metric.name.removesuffix("_total")
    unit = next((word for word in ("seconds", "bytes", "rows") if named.endswith(word)), None)
    assert unit is None or unit in metric.help.lower()
    assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_the_dashboard_asks_for_metrics_there_are_and_for_all_of_them() -> None:
    board = json.loads((DOCS / "grafana.json").read_text())
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"headrace_\w+", target["expr"])
    }
    assert asked == {metric.name for metric in METRICS}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


class Source:
    """One source of Spark's progress."""

    def __init__(self, description: str, end: Any, latest: Any) -> None:
        self.description = description
        self.endOffset, self.latestOffset = (json.dumps(v) for v in (end, latest))


def test_what_waits_is_told_by_kafkas_offsets() -> None:
    kafka = Source("KafkaV2[Subscribe[t]]", {"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7, "2": 3}})
    files = Source("FileStreamSource[x]", {"logOffset": 1}, None)
    assert waiting_rows([files, kafka], ["a", "b"]) == {"b": 7}
    assert waiting_rows([kafka], ["a", "b"]) == {}, "which stream it is cannot be told"


def get(url: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={} if host is None else {"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_page_is_for_this_machine_under_its_own_name() -> None:
    server = MetricsServer(0, lambda: "page\n")
    try:
        assert server.url.startswith("http://127.0.0.1:")
        assert get(server.url) == (200, "page\n")
        assert get(server.url, "localhost:1") == (200, "page\n")
        assert get(server.url, "evil.example:80")[0] == 403
        assert get(server.url.replace("/metrics", "/"))[0] == 404
        with pytest.raises(EnvironmentProblem, match="cannot have port"):
            MetricsServer(int(server.url.split(":")[2].split("/")[0]), lambda: "")
    finally:
        server.close()


def test_a_run_is_scraped(spark: Any, tmp_path: Path) -> None:
    options = {"rate": 1000, "rows": 4000, "epoch": 1000, "keys": 5, "seed": 3}
    file = tmp_path / "pipeline.yml"
    file.write_text(
        f"streams: {{s: {{source: {{format: synthetic, options: {json.dumps(options)}}}}}}}\n"
        "queries: {q: {sql: 'SELECT key, COUNT(*) AS n FROM s [WINDOW 1 s] GROUP BY key', sink: memory}}\n"
        "engine: {trigger: 0 seconds, metrics: 0}\n"
    )
    run = hr.Pipeline.from_file(file).start(spark)
    try:
        run.process_all_available()
        assert run.metrics_url is not None
        found = samples(get(run.metrics_url)[1])
        assert found["headrace_rows_total"]["s", "used"] == 4000
        assert found["headrace_epoch"][()] == run.progress.epoch
        assert found["headrace_query_answers_total"]["q",] == run.progress.queries["q"].answers > 0
        assert found["headrace_epoch_step_seconds"]["absorb",] > 0
        assert found["headrace_decisions_total"]["schedule",] >= 1
    finally:
        url = run.metrics_url
        run.stop()
    with pytest.raises(urllib.error.URLError):
        get(str(url))
