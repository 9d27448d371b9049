"""Sites that run: answers are DuckDB's over the union of what their births admit, wherever operators are placed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from site_world import admitted, check, make_epochs, play, write

from headrace.engine import describe_checkpoint

# Some drivers are started one after the other; a busy machine takes its time.
pytestmark = pytest.mark.timeout(1200)


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
    status = describe_checkpoint(str(tmp_path / "state/hub"))
    assert {(link["from"], link["to"], link["waiting_epochs"]) for link in status["links"]} == {
        (site, "hub", 0) for site in ("paris", "rome", "hub")
    }


def test_queries_at_all_sites_that_send_to_each_other(spark: Any, tmp_path: Path) -> None:
    tables = make_epochs(epochs=3)
    write(tmp_path, tables, 0, 3)
    play(spark, tmp_path, "spread", flush=True)
    check(tmp_path, tables)
