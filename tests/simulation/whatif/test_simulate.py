"""A pipeline simulated: what its numbers obey, whatever they are, and how it reacts to rates and hosts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from pipelines import EVERY_KIND, FILES, pipeline_of

from headrace.errors import SpecError
from headrace.model import JoinDecision, Pipeline
from headrace.simulation.whatif import (
    Scenario,
    epoch_rows,
    find_hosts,
    find_rate,
    prediction_json,
    prediction_text,
    rate_of,
    set_up,
    simulate,
    slow_hosts,
)

HEAVY = {"median": "SELECT g, MEDIAN(v) AS m FROM r [WINDOW 4 s SLIDE 2 s] GROUP BY g"}


@pytest.fixture
def every_kind(tmp_path: Path) -> Pipeline:
    return pipeline_of(tmp_path, EVERY_KIND)


def heavy(folder: Path, shedding: str = "off") -> Pipeline:
    """A pipeline over a DataFrame of the caller's: an epoch takes all that waits."""
    pipeline = pipeline_of(folder, HEAVY, f"trigger: 1 second, shedding: {shedding}")
    return replace(pipeline, streams=(replace(pipeline.streams[0], source=None),))


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(every_kind: Pipeline) -> None:
    one, two, other = (epoch_rows(simulate(set_up(every_kind), Scenario(minutes=0.3, seed=seed))) for seed in (1, 1, 2))
    assert one == two
    assert one != other


def test_a_rate_that_is_easy_is_held(every_kind: Pipeline) -> None:
    found = simulate(set_up(every_kind), Scenario(minutes=1))
    assert found.holds
    assert found.used_per_s == pytest.approx(21_000, rel=0.02)
    assert found.trigger_s < found.lag_s < 3 * found.trigger_s
    assert set(found.ways) == {"pairs"} | {n for n in found.ways if n.startswith("pairs_")}
    assert len(found.ways) == 2


def test_what_is_told_says_every_guess_and_every_number(every_kind: Pipeline) -> None:
    setup = set_up(every_kind)
    found = simulate(setup, Scenario(rate_of("2x"), minutes=0.5))
    text, value = prediction_text(found), json.loads(json.dumps(prediction_json(found)))
    assert "With 40,000 rows/s of 'r', 2,000 rows/s of 't' on 4 hosts" in text
    assert all(guess in text for guess in found.guesses)
    assert any("nothing was measured" in guess for guess in value["guesses"])
    assert any("how many hosts" in guess for guess in value["guesses"])
    assert value["used_rows_per_s"] == pytest.approx(42_000, rel=0.05)
    assert len(value["spans"]) == 10


def test_more_hosts_shorten_epochs_and_a_slow_one_lengthens_them(every_kind: Pipeline) -> None:
    setup = set_up(every_kind, hosts=4)
    scenario = Scenario(rate_of("4x"), minutes=0.5)
    plain, more, slow = (
        simulate(setup, each).epoch_s
        for each in (scenario, replace(scenario, hosts=16), replace(scenario, slow=slow_hosts(["host0=0.1"])))
    )
    assert more < plain < slow


def test_rows_that_come_faster_than_they_are_used_make_the_lag_grow(tmp_path: Path) -> None:
    found = simulate(set_up(heavy(tmp_path), hosts=1), Scenario(rate_of("60x"), minutes=2))
    assert not found.holds
    assert "the lag grows" in found.why or "an epoch takes longer" in found.why
    assert found.used_per_s < 0.95 * found.came_per_s or found.lag_s > 5
    assert not found.shed


def test_where_it_is_allowed_rows_are_shed_and_the_lag_is_held(tmp_path: Path) -> None:
    kept, shed = (
        simulate(set_up(heavy(tmp_path, how), hosts=1), Scenario(rate_of("25x"), minutes=2)) for how in ("off", "fit")
    )
    assert shed.shed["median"] > 0.1
    assert shed.why == f"'median' loses {shed.shed['median']:.0%} of its rows"
    assert shed.lag_s < 0.5 * kept.lag_s
    entry = shed.beats[-1].record.ledger["r"]
    assert entry.shed > 0
    assert any("against overload" in text for _, text in shed.changes)


def test_a_hot_way_of_a_join_is_chosen_by_the_policy(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, {"pairs": EVERY_KIND["pairs"]}, "trigger: 1 second, join: biclique")
    beats = simulate(set_up(pipeline), Scenario(minutes=0.3)).beats
    decisions = [beat.decision.nodes["pairs"] for beat in beats]
    assert {node.way.way for node in decisions if isinstance(node, JoinDecision)} == {"biclique"}


def test_without_a_trigger_one_epoch_follows_the_other(tmp_path: Path) -> None:
    beats = simulate(set_up(pipeline_of(tmp_path, HEAVY, "trigger: 0 s")), Scenario(minutes=0.2)).beats
    assert all(after.began_s == pytest.approx(before.ended_s) for before, after in pairwise(beats))


def test_streams_that_bring_nothing_have_no_epochs(tmp_path: Path) -> None:
    found = simulate(set_up(heavy(tmp_path)), Scenario(rate_of("1e-9x"), minutes=0.2))
    assert (found.beats, found.holds, found.why) == ((), False, "no rows came for an epoch")
    assert "(no rows came)" in prediction_text(found)


def test_the_highest_rate_is_held_and_one_a_little_higher_is_not(tmp_path: Path) -> None:
    setup, scenario = set_up(heavy(tmp_path), hosts=1), Scenario(minutes=1)
    found = find_rate(setup, scenario)
    assert found.holds
    above = replace(found.scenario, rate=replace(found.scenario.rate, times=1.05 * found.scenario.rate.times))
    assert not simulate(setup, above).holds


def test_the_fewest_hosts_hold_and_one_less_does_not(tmp_path: Path) -> None:
    setup, scenario = set_up(heavy(tmp_path), hosts=1), Scenario(rate_of("100x"), minutes=1)
    found = find_hosts(setup, scenario)
    assert found.holds
    assert found.prediction.hosts > 1
    assert not simulate(setup, replace(scenario, hosts=found.prediction.hosts - 1)).holds


def test_a_limit_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert not find_hosts(set_up(heavy(tmp_path), hosts=1), Scenario(rate_of("1000000x"), minutes=0.1)).holds


def test_what_is_born_at_several_sites_is_refused(tmp_path: Path) -> None:
    sites = "sites: {paris: {streams: [r]}, hub: {proxy: true, streams: [r, t]}}\nnetwork: {latency_ms: {hub-paris: 5}}"
    with pytest.raises(SpecError, match="several sites cannot be simulated"):
        set_up(pipeline_of(tmp_path, EVERY_KIND, files=FILES.replace("path: r", "path: '{site}/r'") + sites))


def test_a_lookup_in_a_table_is_played_as_a_node_that_others_read(tmp_path: Path) -> None:
    files = FILES + "tables: {names: {source: {format: parquet, path: names}, schema: 'k INT, name STRING'}}\n"
    queries = {
        "named": "SELECT n.name, COUNT(*) AS c FROM t [WINDOW 4 s] LEFT JOIN names AS n ON t.k = n.k GROUP BY n.name",
        "last": "SELECT n.name, SUM(v) AS s FROM t [PARTITION BY name ROWS 5] JOIN names AS n ON t.k = n.k",
    }
    found = simulate(set_up(pipeline_of(tmp_path, queries, files=files)), Scenario(minutes=0.5))
    assert found.holds
    assert found.used_per_s == pytest.approx(21_000, rel=0.05)
