"""What `simulate` prints and leaves, from a file alone and from a checkpoint; without Spark."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from pipelines import EVERY_KIND, pipeline_of

from headrace.cli.app import _run
from headrace.engine.state.checkpoint import Checkpoint, Manifest, QueryState
from headrace.engine.state.storage import open_storage
from headrace.simulation.whatif import Scenario, set_up, simulate

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    pipeline_of(tmp_path, EVERY_KIND)
    return tmp_path / "pipeline.yml"


def simulated(capsys: pytest.CaptureFixture[str], spec: Path, *options: str, code: int = 0) -> str:
    assert _run(["simulate", str(spec), *options], False) == code
    told = capsys.readouterr()
    return told.err if code else told.out


def test_a_summary_a_table_and_files(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = simulated(
        capsys, spec, "--minutes", "0.3", "--hosts", "4", "--slow", "host3=0.4", "--out", str(tmp_path / "o")
    )
    assert "pipeline 'world' holds its lag" in told
    assert "rows/s used" in told
    assert "taken for granted" in told
    assert {path.name for path in (tmp_path / "o").iterdir()} == {
        "epochs.csv", "summary.txt", "lag.png", "epochs.png", "rows.png"
    }  # fmt: skip
    with (tmp_path / "o" / "epochs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert all(float(row["lag_s"]) > 0 for row in rows)


def test_the_same_command_leaves_the_same_bytes(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        simulated(capsys, spec, "--minutes", "0.2", "--seed", "7", "--out", str(tmp_path / name))
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes(), path.name


def test_json_is_all_there_is_on_stdout(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = json.loads(simulated(capsys, spec, "--minutes", "0.2", "--rate", "42000", "--json"))
    assert sum(value["rates_rows_per_s"].values()) == pytest.approx(42_000)
    assert value["guesses"]


def test_the_highest_rate_is_found(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = json.loads(simulated(capsys, spec, "--minutes", "0.1", "--find", "rate", "--json"))
    assert value["found"]
    assert value["holds"]


def test_costs_come_from_a_checkpoint(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = pipeline_of(tmp_path, EVERY_KIND)
    point = Checkpoint(open_storage(str(tmp_path / "state")))
    point.open(2, {stream.name: "parquet" for stream in pipeline.streams})
    for beat in simulate(set_up(pipeline, hosts=4), Scenario(minutes=0.3)).beats:
        record, epoch = beat.record, beat.decision.epoch
        queries = {name: QueryState("", answered_us=until) for name, until in record.answered_us.items()}
        point.write_decision(record.decision)
        point.commit(
            Manifest(epoch, epoch, record.clocks, record.ledger, queries, nodes=record.nodes, observed=record.observed)
        )
    point.close()
    told = simulated(capsys, spec, "--from", str(tmp_path / "state"), "--minutes", "0.3")
    assert "on 4 hosts" in told
    assert "nothing was measured" not in told


@pytest.mark.parametrize(
    ("options", "says"),
    [
        pytest.param(("--rate", "fast"), "--rate fast: write so many times the rate", id="a rate in words"),
        pytest.param(("--find", "peace"), "--find peace: what can be found is rate or hosts", id="another limit"),
        pytest.param(("--hosts", "2", "--slow", "host2=0.5"), "--slow host2: there are 2 hosts", id="a host too many"),
        pytest.param(("--minutes", "0"), "--minutes 0", id="no time"),
        pytest.param(("--from", "nowhere"), "nowhere has no epoch to learn from", id="no checkpoint"),
        pytest.param(("--hosts", "many"), "Invalid value for '--hosts'", id="hosts in words"),
    ],
)
def test_a_mistake_is_one_sentence(
    options: tuple[str, ...], says: str, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = simulated(capsys, spec, *options, code=2)
    assert says in told
    assert len([line for line in told.splitlines() if not line.startswith("note: ")]) == 1


@pytest.mark.parametrize("name", ["network", "state", "kafka", "delta"])
def test_examples_can_be_simulated(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "taken for granted" in simulated(capsys, EXAMPLES / name / "pipeline.yml", "--minutes", "0.1")
