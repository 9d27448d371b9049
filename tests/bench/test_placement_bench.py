"""The placement bench judges itself before it reports."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.bench import placement as bench
from headrace.bench import placement_run
from headrace.errors import SpecError
from headrace.language import load_pipeline
from headrace.model import Network
from headrace.policies.placement import Flow, Infeasible, Part, Placement, Problem
from headrace.policies.placement.optimal import optimal
from headrace.policies.placement.warehouse import warehouse
from headrace.sites import cut_as_placed

NETWORK = Network(("a", "b", "c"), ((0, 10, 14), (10, 0, 5), (14, 5, 0)))
# 8 bytes a second from a and 6 from b become 4 for c: at a they cost 6 x 10 + 4 x 14, at b 8 x 10 + 4 x 5, at c
# 8 x 14 + 6 x 5.
PROBLEM = Problem(
    (Part("x", "a"), Part("y", "b"), Part("join", load=2.0), Part("answers", "c")),
    (Flow("x", "join", 8.0), Flow("y", "join", 6.0), Flow("join", "answers", 4.0)),
    NETWORK,
)


@pytest.mark.parametrize(
    ("problem", "cost"),
    [
        pytest.param(PROBLEM, 100.0, id="at b"),
        pytest.param(replace(PROBLEM, max_latency_ms=15.0), 100.0, id="within 15 ms: at b"),
        pytest.param(replace(PROBLEM, max_latency_ms=14.0), 142.0, id="within 14 ms: at c"),
        pytest.param(replace(PROBLEM, capacity={"b": 1.0}), 116.0, id="b has no room"),
        pytest.param(replace(PROBLEM, capacity={"b": 1.0, "a": 1.0}), 142.0, id="only c has room"),
        pytest.param(replace(PROBLEM, max_latency_ms=13.0), None, id="nothing is so near"),
        pytest.param(replace(PROBLEM, capacity=dict.fromkeys("abc", 1.0)), None, id="nobody has room"),
    ],
)
def test_brute_force(problem: Problem, cost: float | None) -> None:
    assert bench.brute_force(problem) == cost


def test_small_problems_are_of_all_kinds() -> None:
    rng = random.Random(1)
    plain = [bench.small_problem(rng, False, False) for _ in range(20)]
    bounded = [bench.brute_force(bench.small_problem(rng, True, False)) for _ in range(20)]
    limited = [bench.brute_force(bench.small_problem(rng, False, True)) for _ in range(20)]
    assert all(problem.is_tree for problem in plain)
    assert 0 < sum(cost is None for cost in bounded) < 20
    assert sum(cost is not None for cost in limited) > 0


GML = """graph [
  node [ id 0 label "A" Latitude 50 Longitude 0 ] node [ id 1 label "B" Latitude 48 Longitude 9 ]
  node [ id 2 label "C" Latitude 41 Longitude 12 ] node [ id 3 label "D" Latitude 60 Longitude 20 ]
  node [ id 4 label "Island" Latitude 0 Longitude 0 ]
  edge [ source 0 target 1 ] edge [ source 1 target 2 ] edge [ source 1 target 3 ]
]"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK", (1, 1, (3,)))
    monkeypatch.setattr(bench, "PLACEMENTS", {"cluster": (0.4, 0.2)})
    monkeypatch.setattr(bench, "BOUNDS", (None, 120.0))
    monkeypatch.setattr(bench, "MANY_SITES", 40)
    monkeypatch.setattr(bench, "run_two_sites", lambda quick, say: (True, {"bytes_vs_warehouse": 9.0}, {"optimal": {}}))


@pytest.mark.usefixtures("small")
def test_what_the_bench_reports(tmp_path: Path) -> None:
    (tmp_path / "net.gml").write_text(GML)
    (tmp_path / "rtt.csv").write_text("0,10,20\n12,0,8\n20,8,0\n")
    lines: list[str] = []
    told = bench.bench_placement(True, lines.append, [tmp_path / "net.gml"], [tmp_path / "rtt.csv"])
    assert told["bench"] == "placement"
    assert told["correct"]
    assert told["ratios"].keys() == {
        "optimal_over_brute_force", "in_network_over_optimal", "seconds_490_sites", "bytes_vs_warehouse"
    }  # fmt: skip
    assert told["ratios"]["optimal_over_brute_force"] == pytest.approx(1)
    assert told["ratios"]["in_network_over_optimal"] >= 1
    settings = told["measures"]["settings"]
    assert {name.partition(",")[0] for name in settings} == {"cluster", "net", "rtt"}
    for rows in settings.values():
        assert tuple(rows) == bench.STRATEGIES
        assert (
            rows["warehouse"]["bandwidth_ratio"] == rows["warehouse"]["stretch"] == rows["optimal"]["over_optimal"] == 1
        )
        assert rows["warehouse"]["at_proxy"] == 1
        for row in rows.values():
            assert row["over_optimal"] >= 1
            assert row["at_sources"] + row["inside"] + row["at_proxy"] == pytest.approx(1, abs=1e-3)
    assert sum("in-network" in line for line in lines) == len(settings)
    json.dumps(told)


@pytest.mark.usefixtures("small")
def test_wrong_answers_of_sites_that_ran_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run_two_sites", lambda quick, say: (False, {}, {}))
    assert not bench.bench_placement(True, lambda line: None)["correct"]


def test_what_runs_sends_panes_unless_everything_is_shipped(tmp_path: Path) -> None:
    for strategy, panes, rows in (("optimal", 8, 0), ("warehouse", 0, 2)):
        text = placement_run.PIPELINE.replace("%IN", str(tmp_path / "in")).replace("%STRATEGY", strategy)
        (tmp_path / "p.yml").write_text(text)
        links = cut_as_placed(load_pipeline(tmp_path / "p.yml"))["hub"].receives
        carried = [link.panes is not None for link in links]
        assert (carried.count(True), carried.count(False)) == (panes, rows)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(warehouse, id="dearer than brute force"),
        pytest.param(lambda problem: Infeasible("so it says"), id="finds nothing where there is something"),
    ],
)
def test_an_optimum_that_is_none_is_noticed(wrong, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(bench, "optimal", wrong)
    _, equal = bench._judge(random.Random(1), 9)
    assert not equal


@pytest.mark.usefixtures("small")
def test_a_strategy_that_beats_the_optimum_or_breaks_its_bound_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def cheaper(problem: Problem) -> Placement | Infeasible:
        found = optimal(problem)
        assert isinstance(found, Placement)
        return replace(found, cost=found.cost * 0.99)

    monkeypatch.setattr(bench, "warehouse", cheaper)
    assert not bench.bench_placement(True, lambda line: None)["correct"]


def test_a_file_that_is_wrong_stops_the_bench(tmp_path: Path) -> None:
    (tmp_path / "rtt.csv").write_text("0,1\n1\n")
    with pytest.raises(SpecError, match=r"rtt.csv:2: 1 numbers in this row, and the matrix has 2 columns"):
        bench.bench_placement(True, lambda line: None, round_trips=[tmp_path / "rtt.csv"])
