"""Sites that run: answers are DuckDB's over the union of what their births admit, wherever operators are placed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from site_world import admitted, check, make_epochs, parts_of, placed_by, play, write
from world import admit, assert_same, results

from headrace.engine import describe_checkpoint
from headrace.engine.links.folder import LinkFolder
from headrace.engine.state.storage import LocalStorage
from headrace.engine.watch.rates import known_rates
from headrace.sites.watching import describe_sites

# Some drivers are started one after the other; a busy machine takes its time.
pytestmark = pytest.mark.timeout(1200)
QUERIES = ("by_key", "top", "stats", "total", "pairs")
SUPPORT = Path(__file__).parents[1] / "support"
# Where a site dies, one run after the other; more with HEADRACE_KILLS=20.
KILLS = (
    "rome:before-sent@2",  # its epoch is committed, and its link does not say so
    "hub:before-received@1",  # what came along links is committed, and the senders do not know
    *(("rome:after-manifest@1", "rome:after-sent@1") if int(os.environ.get("HEADRACE_KILLS", "1")) > 1 else ()),
)


def test_shipping_everything_across_a_restart(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs()
    write(tmp_path, tables, 0, 2)
    play(spark, tmp_path, "warehouse", flush=False)
    write(tmp_path, tables, 2, 4)
    left = play(spark, tmp_path, "warehouse", flush=True)
    check(tmp_path, tables)
    late = {(site, name): entry.late for site, manifest in left.items() for name, entry in manifest.ledger.items()}
    assert late["hub", "r"] == 0, "rows are late where they are born, and nowhere else"
    assert late["paris", "r"] > 0
    received = left["hub"].ledger["r"]
    assert (received.used, received.rejected) == (admitted(tables)["r"].num_rows, 0)
    status = describe_sites([str(tmp_path / "state")])
    assert {(link["from"], link["to"], link["waiting_epochs"]) for link in status["links"]} == {
        (site, "hub", 0) for site in ("paris", "rome", "hub")
    }
    assert {name: (site["epoch"], site["behind_us"]) for name, site in status["sites"].items()} == {
        site: (manifest.epoch, 0) for site, manifest in left.items()
    }
    assert status["sites"]["hub"] == {**describe_checkpoint(str(tmp_path / "state/hub")), "behind_us": 0}
    assert status["plan"]["strategy"] == "warehouse"
    crossing = {(each["sender"], each["receiver"]): each for each in status["crossings"]}
    assert crossing.keys() == {("paris", "hub"), ("rome", "hub")}, "what a site sends to itself crosses nothing"
    assert all(each["bytes_per_s"] > 0 and each["planned_bytes_per_s"] > 0 for each in crossing.values())
    at_hub = describe_checkpoint(str(tmp_path / "state/hub"))
    assert at_hub["crossings"] == status["crossings"], "the proxy's site knows what crosses, by what links tell it"
    for site in ("paris", "rome"):
        links = at_hub["measured"][site]["links"].values()
        assert {link["stream"]: link["rows"] for link in links} == {
            stream: admit(epochs, 20).rows.num_rows for (stream, born), epochs in tables.items() if born == site
        }
    known = known_rates(str(tmp_path / "state"))
    assert known == known_rates(str(tmp_path / "state/hub"))
    assert known.births.keys() == {("r", "paris"), ("r", "rome"), ("r", "hub"), ("f", "rome")}
    for each in placed_by(tmp_path, known).crossings:
        measured = crossing[each.sender, each.receiver]["bytes_per_s"]
        assert each.bytes_per_s == pytest.approx(measured, rel=0.1), "the plan has learned what crosses"


def test_queries_at_all_sites_that_send_rows_and_panes_to_each_other(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(epochs=3)
    write(tmp_path, tables, 0, 3)
    left = play(spark, tmp_path, "spread", flush=True)
    check(tmp_path, tables)
    for site in ("paris", "hub"):
        entry = left[site].ledger["r"]
        assert (entry.late, entry.rejected, entry.shed) == (0, 0, 0), "panes are late nowhere"
        assert entry.used > 0
    assert left["rome"].ledger["r"].used == admitted(tables)["r"].num_rows, "what a join reads comes as rows"


def test_one_site_several_and_a_warehouse_give_the_same_answers(spark: Any, tmp_path: Path) -> None:
    # Late rows are late by the clock of where they are born, so that only without them all are to be the same.
    tables = {birth: [admit(epochs, 20).rows] for birth, epochs in make_epochs(epochs=2, without="hub").items()}
    found = {}
    for strategy in ("one", "warehouse", "optimal"):
        home = tmp_path / strategy
        births = {(stream, "one" if strategy == "one" else site): list[Any]() for stream, site in tables}
        for (stream, site), epochs in tables.items():
            births[stream, "one" if strategy == "one" else site] += epochs
        write(home, {birth: [pa.concat_tables(each)] for birth, each in births.items()}, 0, 1)
        play(spark, home, strategy, flush=True, born_at_hub=False)
        found[strategy] = {name: results(home / "out" / name) for name in QUERIES}
    for name in QUERIES:
        assert found["one"][name], "something is compared"
        for strategy in ("warehouse", "optimal"):
            assert_same(found[strategy][name], found["one"][name])


def test_kills_at_named_points_while_panes_and_rows_travel(tmp_path: Path) -> None:
    tables = make_epochs(epochs=3, without="hub")
    write(tmp_path, tables, 0, 3)
    for kill in KILLS:
        assert run(tmp_path, kill) == -signal.SIGKILL, log(tmp_path)
        assert (tmp_path / "killed").read_text() == kill
    assert run(tmp_path, "-") == 0, log(tmp_path)
    check(tmp_path, tables)
    links = parts_of(tmp_path, "panes")["hub"].receives
    assert {(link.stream, link.panes is None) for link in links} == {("r", False), ("f", True)}
    for link in links:
        folder = LinkFolder(link, LocalStorage(str(tmp_path / "state/links" / link.id)))
        receipt = folder.receipt()
        assert receipt is not None
        assert receipt.epoch == folder.sent()[-1]


def run(home: Path, kill: str) -> int:
    paths = [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, str(SUPPORT / "site_world.py"), str(home), "panes", kill]
    with (home / "log.txt").open("ab") as out:
        return subprocess.Popen(command, env=environment, stdout=out, stderr=out).wait(timeout=400)


def log(home: Path) -> str:
    return (home / "log.txt").read_text()[-3000:]
