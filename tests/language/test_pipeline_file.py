"""Pipeline files: good ones become a Pipeline, wrong ones say every mistake and its line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import SpecError
from headrace.language import SYNTHETIC_COLUMNS, include_patterns, load_pipeline
from headrace.model import EngineSettings, Network, PlacementSettings, Rate, SinkSpec, Site, Source

WRONG = sorted((Path(__file__).parent / "wrong_pipelines").glob("*.yml"))

GOOD = """
name: network-monitor
streams:
  packets:
    source: {format: parquet, path: data/packets, options: {maxFilesPerTrigger: 4, recursive: true}}
    schema: ts TIMESTAMP, src STRING, length INT
    time: TS
    lateness: 5 seconds
    rate: 50000 rows/s, 4 MB/s
  clicks: {source: {format: synthetic, options: {rate: 10, disorder: 2 s}}}
  remote: {source: {format: json, path: "s3a://bucket/in"}, schema: t TIMESTAMP, time: t, idle: 1 h}
queries:
  top_talkers:
    sql: |
      SELECT src, SUM(length) AS bytes
      FROM packets [WINDOW 10 min SLIDE 2 min] GROUP BY src
    sink: {format: json, path: results, options: {compression: gzip}}
    priority: 1
    weight: 2.5
    lifetime: 2 hours
  shown: {sql: "SELECT COUNT(*) AS n FROM clicks [WINDOW 1 min]", sink: console}
include: queries/*.sql
output: out
engine: {trigger: 2 seconds, schedule: hybrid, shedding: off, bins: 8, conf: {spark.ui.enabled: false}}
sites:
  paris: {streams: [packets, clicks]}
  lyon: {streams: [remote]}
  hub: {proxy: true}
network: {latency_ms: {paris-hub: 12, hub-lyon: 7.5}}
placement: {strategy: edge+, max_latency: 120 ms}
"""


@pytest.fixture
def good(tmp_path: Path) -> Path:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "total.sql").write_text("-- all of it\nSELECT COUNT(*) AS n FROM remote [WINDOW 1 min];\n")
    path = tmp_path / "pipeline.yml"
    path.write_text(GOOD)
    return path


def test_a_whole_file(good: Path) -> None:
    base = good.parent.resolve()
    pipeline = load_pipeline(good)
    assert pipeline.name == "network-monitor"
    packets, clicks, remote = pipeline.streams
    assert packets.source == Source(
        "parquet", f"{base}/data/packets", (("maxFilesPerTrigger", "4"), ("recursive", "true"))
    )
    assert (packets.time, packets.lateness_us, packets.ahead_us) == ("ts", 5_000_000, 3_600_000_000)
    assert (packets.rate, clicks.rate) == (Rate(50_000, 4_000_000), None)
    assert (clicks.columns, clicks.time) == (SYNTHETIC_COLUMNS, "ts")
    assert clicks.source == Source("synthetic", None, (("rate", "10"), ("disorder", "2 s")))
    assert remote.source == Source("json", "s3a://bucket/in")
    assert remote.idle_us == 3_600_000_000
    assert {query.name: query.sink for query in pipeline.queries} == {
        "top_talkers": SinkSpec("json", f"{base}/results", (("compression", "gzip"),)),
        "shown": SinkSpec("console"),
        "total": SinkSpec("parquet", f"{base}/out/total"),
    }
    assert [(query.priority, query.weight) for query in pipeline.queries] == [(1, 2.5), (0, 1.0), (0, 1.0)]
    assert [query.lifetime_us for query in pipeline.queries] == [7_200_000_000, None, None]
    assert pipeline.output == f"{base}/out"
    assert pipeline.engine == EngineSettings(
        2_000_000, f"{base}/state", "hybrid", "auto", "off", 8, (("spark.ui.enabled", "false"),)
    )
    assert pipeline.sites == (Site("paris", ("packets", "clicks")), Site("lyon", ("remote",)), Site("hub", (), True))
    assert pipeline.placement == PlacementSettings("edge+", 120_000)
    assert pipeline.network == Network(("paris", "lyon", "hub"), ((0, 19.5, 12), (19.5, 0, 7.5), (12, 7.5, 0)))


@pytest.mark.parametrize(
    ("sink", "made", "said"),
    [
        pytest.param("{path: o, partition_by: [src, n]}", SinkSpec("parquet", "o", (), ("src", "n")), "", id="folders"),
        pytest.param("{path: o, partition_by: src}", SinkSpec("parquet", "o", (), ("src",)), "", id="one folder"),
        pytest.param("{format: delta, path: o, mode: upsert, key: src}",
                     SinkSpec("delta", "o", key=("src",), latest="window_end"), "", id="the latest window of each key"),
        pytest.param("{format: delta, path: o, mode: append}", SinkSpec("delta", "o"), "", id="all results"),
        pytest.param("{format: delta, path: o, mode: upsert}", None, "has mode: upsert, and no key", id="no key"),
        pytest.param("{format: delta, path: o, key: src}", None, "has key, and appends all results", id="no mode"),
        pytest.param("{format: delta, path: o, mode: merge}", None, "mode should be append or upsert", id="a mode"),
        pytest.param("{path: o, partition_by: [srv]}", None, "partition_by names 'srv', which is no result", id="none"),
    ],
)  # fmt: skip
def test_how_results_lie(sink: str, made: SinkSpec | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text(
        "streams: {s: {source: {format: parquet, path: in}, schema: 'ts TIMESTAMP, src STRING', time: ts}}\n"
        f'queries: {{q: {{sql: "SELECT src, COUNT(*) AS n FROM s [WINDOW 1 min] GROUP BY src", sink: {sink}}}}}\n'
    )
    if made is None:
        with pytest.raises(SpecError) as caught:
            load_pipeline(path)
        assert said in str(caught.value)
    else:
        assert load_pipeline(path).queries[0].sink == replace(made, path=f"{tmp_path}/o")


def test_what_a_file_includes(good: Path) -> None:
    assert include_patterns(good) == ("queries/*.sql",)
    good.write_text(GOOD.replace("queries/*.sql", "[a/*.sql, ../b.sql, 3, 'c.sql']"))
    assert include_patterns(good) == ("a/*.sql", "c.sql")
    good.write_text("[" * 50)
    assert include_patterns(good) == ()
    assert include_patterns(good.parent / "none.yml") == ()


def test_a_mistake_in_an_included_file_names_that_file(good: Path) -> None:
    (good.parent / "queries" / "total.sql").write_text("SELECT COUNT(*) AS n\nFROM remotes [WINDOW 1 min]")
    with pytest.raises(SpecError, match=r"queries/total\.sql:2:6: query 'total': unknown stream 'remotes'"):
        load_pipeline(good)


def test_an_included_query_of_a_name_already_taken_is_refused(good: Path) -> None:
    (good.parent / "queries" / "Shown.sql").write_text("SELECT COUNT(*) FROM remote [WINDOW 1 min]")
    with pytest.raises(SpecError, match="query 'Shown' stands twice"):
        load_pipeline(good)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"\xff\xfe\x00", "not UTF-8 text", id="bytes that are not text"),
        pytest.param(b"name: \x07", "characters that YAML does not allow", id="a control character"),
        pytest.param(b"x" * 1_000_001, "larger than", id="a megabyte"),
        pytest.param(b"[" * 5000, "too deep", id="thousands of brackets"),
        pytest.param(b"a: &a\n  b: *a\n", "too deep", id="a value that holds itself"),
    ],
)
def test_a_file_that_cannot_be_read(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=expected):
        load_pipeline(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read the file: No such file"):
        load_pipeline(tmp_path / "none.yml")


def test_there_are_enough_wrong_files() -> None:
    assert len(WRONG) >= 110


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem.replace("_", " ")) for path in WRONG])
def test_a_wrong_file_says_what_and_where(path: Path) -> None:
    expected = re.findall(r"^# expect: (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert expected
    with pytest.raises(SpecError) as caught:
        load_pipeline(path)
    message = str(caught.value)
    assert [fragment for fragment in expected if fragment not in message] == [], message
    assert all(re.match(rf"{re.escape(str(path))}:\d+", line) for line in message.splitlines()), message


def test_queries_over_a_wrong_stream_add_no_second_mistake() -> None:
    path = Path(__file__).parent / "wrong_pipelines" / "a_wrong_stream_is_one_mistake.yml"
    with pytest.raises(SpecError) as caught:
        load_pipeline(path)
    assert len(caught.value.problems) == 1


def test_what_a_file_says_of_shedding(tmp_path: Path) -> None:
    text = """
streams:
  s: {source: {format: rate}, schema: 'timestamp TIMESTAMP, value BIGINT', time: timestamp}
queries:
  a: {sql: 'SELECT COUNT(*) AS n FROM s [WINDOW 1 min]', shedding: {scale: true}, weight: 2}
  b: {sql: 'SELECT COUNT(*) AS n FROM s [WINDOW 1 min]', shedding: never}
"""
    path = tmp_path / "p.yml"
    path.write_text(f"{text}engine: {{shedding: central, backlog: shed, objective: fair}}\n")
    found = load_pipeline(path)
    assert (found.engine.shedding, found.engine.backlog, found.engine.objective) == ("central", "shed", "fair")
    assert [(q.shedding.scale, q.shedding.never) for q in found.queries] == [(True, False), (False, True)]
    assert found.notes == ()
    path.write_text(text)
    assert load_pipeline(path).engine.shedding == "off"
    assert load_pipeline(path).notes == ("query 'a' has nothing to scale while shedding is off: no row is lost",)
