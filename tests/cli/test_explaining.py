"""What `explain` prints in each of its forms; without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headrace.cli.app import _run

EXAMPLES = Path(__file__).parents[2] / "examples"
SITES = EXAMPLES / "sites" / "pipeline.yml"
ALONE = EXAMPLES / "network" / "pipeline.yml"


def explained(capsys: pytest.CaptureFixture[str], spec: Path, *options: str, code: int = 0) -> str:
    assert _run(["explain", str(spec), *options], False) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_text_says_what_runs_where_and_what_it_saves(capsys: pytest.CaptureFixture[str]):
    told = explained(capsys, SITES)
    assert "placement (optimal)" in told
    assert "frankfurt runs " in told
    assert "from oregon to virginia: " in told
    assert "if everything were shipped (warehouse) (" in told
    assert "value > 500 holds for 0.333 of the rows of requests" in told


def test_json_has_the_graph_and_the_placement(capsys: pytest.CaptureFixture[str]):
    value = json.loads(explained(capsys, SITES, "--json"))
    assert {node["kind"] for node in value["graph"]["nodes"]} == {"source", "synopsis", "answer", "sink"}
    assert value["placement"]["sites"]["answers of slow"] == "frankfurt"
    assert value["placement"]["cost"] < value["placement"]["compared"]["warehouse"]["cost"]


def test_a_map_is_svg(capsys: pytest.CaptureFixture[str]):
    root = ElementTree.fromstring(explained(capsys, SITES, "--svg"))
    assert root.tag.endswith("svg")
    assert "frankfurt" in "".join(root.itertext())


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param(SITES, 'subgraph s0["virginia"]', id="with sites, who runs what where"),
        pytest.param(ALONE, "stream packets", id="without, the graph"),
    ],
)
def test_flowcharts(capsys: pytest.CaptureFixture[str], spec: Path, said: str):
    told = explained(capsys, spec, "--mermaid")
    assert told.startswith("flowchart LR\n")
    assert said in told


def test_there_is_no_map_without_sites(capsys: pytest.CaptureFixture[str]):
    assert "this pipeline has none" in explained(capsys, ALONE, "--svg", code=2)


def test_what_cannot_be_placed_is_not_drawn(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "p.yml").write_text(SITES.read_text().replace("max_latency: 200 ms", "max_latency: 50 ms"))
    assert "there is no placement to draw" in explained(capsys, tmp_path / "p.yml", "--svg", code=2)
    assert "impossible" in explained(capsys, tmp_path / "p.yml")


def test_check_names_a_bound_that_cannot_be_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    (tmp_path / "p.yml").write_text(SITES.read_text().replace("max_latency: 200 ms", "max_latency: 50 ms"))
    assert _run(["check", str(tmp_path / "p.yml")], False) == 2
    assert "there is no placement" in capsys.readouterr().err
