"""Several checkpoints as one: which there are, how far each is, and what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.app import _run
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.storage import LocalStorage
from headrace.errors import SpecError
from headrace.model import LinkMeasure, SiteMeasures, plain
from headrace.sites.watching import as_one, describe_sites


def checkpoint(folder: Path) -> None:
    """One that has begun, and has no epoch yet."""
    point = Checkpoint(LocalStorage(str(folder), sync=False))
    point.open(1, {})
    point.close()


def test_one_checkpoint_is_told_of_as_ever_however_it_is_named(tmp_path: Path) -> None:
    checkpoint(tmp_path / "state/hub")
    alone = describe_sites([str(tmp_path / "state/hub")])
    assert describe_sites([str(tmp_path / "state")]) == alone
    assert (alone["epoch"], alone["site"], alone["plan"]) == (-1, None, None)


def test_checkpoints_of_a_folder_and_others_are_told_of_once(tmp_path: Path) -> None:
    for site in ("state/paris", "state/hub", "far/rome"):
        checkpoint(tmp_path / site)
    (tmp_path / "state/links/r_1").mkdir(parents=True)
    roots = [str(tmp_path / "state"), str(tmp_path / "far/rome"), str(tmp_path / "state/hub")]
    assert list(describe_sites(roots)["sites"]) == ["hub", "paris", "rome"]


def test_a_site_that_cannot_be_read_is_told_of_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for site in ("paris", "hub"):
        checkpoint(tmp_path / site)
    (tmp_path / "paris/links.json").write_text("00000000\n{}")
    assert _run(["status", str(tmp_path)], False) == 0
    text = capsys.readouterr().out
    assert "cannot be read" in text
    assert "paris/links.json is altered or truncated" in text
    assert _run(["status", str(tmp_path), "--json"], False) == 0
    sites = json.loads(capsys.readouterr().out)["sites"]
    assert sites["hub"]["epoch"] == -1
    assert "altered" in sites["paris"]["problem"]


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is not a checkpoint, and no folder in it is one"):
        describe_sites([str(tmp_path)])


def test_a_file_is_no_checkpoint_and_one_beside_checkpoints_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yml").write_text("name: p")
    for place in (tmp_path, tmp_path / "pipeline.yml"):
        with pytest.raises(SpecError, match="is not a checkpoint, and no folder in it is one"):
            describe_sites([str(place)])


def test_sites_of_two_pipelines_are_told_apart_by_their_folders() -> None:
    status = {"site": "hub", "epoch": -1, "links": []}
    whole = as_one([{**status, "checkpoint": "a/hub"}, {**status, "checkpoint": "b/hub"}])
    assert list(whole["sites"]) == ["hub", "b/hub"]


def test_sites_that_were_cut_by_other_files_are_told_of() -> None:
    link = {"link": "r_1", "from": "rome", "to": "hub", "lag_us": None}
    plan = {"strategy": "edge"}
    others = [link, {**link, "link": "r_2", "from": "away"}]
    hub = {"checkpoint": "s/hub", "site": "hub", "plan": plan, "links": others}
    rome = {"checkpoint": "s/rome", "site": "rome", "plan": plan, "links": [link]}
    assert as_one([hub, rome])["strangers"] == [], "of a site that is not looked at nothing is known"
    broken = {"checkpoint": "s/rome", "site": "rome", "problem": "x"}
    assert as_one([hub, broken])["strangers"] == []
    (told,) = as_one([hub, {**rome, "links": []}])["strangers"]
    assert told.startswith("hub receives link r_1 from rome, and rome knows nothing of it")


def test_what_crosses_is_summed_over_links_and_told_beside_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    from headrace.cli.showing_sites import show_sites

    def measured(sender: str, *carried: int, seconds: int | None = 10) -> dict[str, SiteMeasures]:
        last = None if seconds is None else seconds * 1_000_000
        links = {str(i): LinkMeasure("hub", "r", size, 5, 9, 8.0, 0, last) for i, size in enumerate(carried)}
        return {sender: SiteMeasures(7, links=links)}

    crossings = [{"sender": a, "receiver": "hub", "bytes_per_s": 50.0, "distance_ms": 10.0} for a in ("rome", "oslo")]
    left = Manifest(-1, -1)
    hub = {
        "checkpoint": "s/hub", "site": "hub", "epoch": left.epoch, "engine": {"owner": None, "alive": None},
        "plan": {"strategy": "edge", "crossings": crossings}, "links": [],
        "measured": plain(measured("rome", 200, 100) | measured("paris", 40, seconds=None) | measured("hub", 7)),
    }  # fmt: skip
    rome = {**hub, "checkpoint": "s/rome", "site": "rome", "measured": {"rome": {"epoch": 6}}, "plan": None}
    whole = as_one([rome, hub])
    assert {(c["sender"], c["bytes"], c["bytes_per_s"], c["planned_bytes_per_s"]) for c in whole["crossings"]} == {
        ("rome", 300, 30.0, 50.0), ("oslo", 0, None, 50.0), ("paris", 40, None, 0.0),
    }, "the newest of what sites have told of each other counts"  # fmt: skip
    show_sites(whole)
    text = capsys.readouterr().out
    assert "from rome to hub: 300 B as yet, 30 B/s, planned 50 B/s; 10 ms away" in text
    assert "from oslo to hub: 0 B as yet, planned 50 B/s; 10 ms away" in text
    assert "bytes/s times ms (edge): 300 measured, 1,000 planned" in text
