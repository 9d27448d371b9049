"""Two brief seeds of chaos on real Spark, and what plans promise without it.

`./run chaos --seeds 40` plays more and longer ones, with Kafka, PostgreSQL and a cluster; `--without` takes a safeguard
away, and the seed must then fail (`README.md`).
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from chaos_plan import POINTS, RARE_POINTS, Act, Ask, Fault, Life, Plan, make_plan
from chaos_play import play
from chaos_without import SAFEGUARDS
from chaos_world import World

# Between them: kills after the sinks and after the manifest, and every fault that needs no cluster.
SEEDS = (0, 57)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", SEEDS)
def test_results_and_ledger_equal_duckdbs_whatever_happens(seed: int, tmp_path: Path) -> None:
    plan = make_plan(seed, kafka=False, postgres=False, cluster=False, brief=True)
    outcome = play(seed, tmp_path / "home", plain=True, brief=True)
    assert outcome.verdict == "right", f"{outcome}\n{plan}"
    assert outcome.facts["rows"] > 1000
    assert sum(outcome.faults.values()) == len(plan.faults)


def test_a_plan_is_a_function_of_its_seed() -> None:
    assert make_plan(3) == make_plan(3)
    assert make_plan(3) != make_plan(4)
    assert World(make_plan(3)).rows == World(make_plan(3)).rows


def test_seeds_draw_every_kind_of_fault_place_and_query() -> None:
    plans = [make_plan(seed) for seed in range(60)]
    faults = Counter(fault.kind for plan in plans for fault in plan.faults)
    assert set(faults) == {"kill driver", "kill worker", "kill executor", "stop", "storage error", "full disk", "clock",
                           "rival"}  # fmt: skip
    deaths = {fault.point for plan in plans for fault in plan.faults if fault.kind == "kill driver"}
    assert deaths == {"", *POINTS, *RARE_POINTS}
    asks = {ask for plan in plans for life in plan.lives for act in life.acts for ask in act.asks}
    assert {ask.kind for ask in asks} == {"hop", "slide", "total", "having", "pairs", "left", "rows", "counted"}
    assert {ask.sink for ask in asks} == {"parquet", "delta", "jdbc"}
    for place in ("kafka", "postgres", "cluster", "by_chance"):
        assert any(getattr(plan, place) for plan in plans)
    assert any(act.live for plan in plans for life in plan.lives for act in life.acts)


@pytest.mark.parametrize("seed", range(40))
def test_all_lives_but_the_last_end_by_a_kill_and_the_last_flushes(seed: int) -> None:
    plan = make_plan(seed)
    for life in plan.lives[:-1]:
        assert [fault.kind for fault in life.acts[-1].faults][-1] == "kill driver"
    assert all(fault.kind != "kill driver" for act in plan.lives[-1].acts for fault in act.faults)
    assert plan.lives[-1].acts[-1].flush
    assert not plan.lives[-1].acts[-1].faults


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_a_safeguard_is_there_to_be_taken_away(safeguard: str) -> None:
    """In a process of its own: whoever renames what is patched learns it here, and not by a seed that fails anyhow."""
    here = Path(__file__).parent
    code = (
        f"import sys; sys.path.insert(0, {str(here)!r}); from chaos_without import take_away; take_away({safeguard!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_plan_reads_as_what_will_happen() -> None:
    ask = Ask("hop", "hop", 40, 20)
    act = Act(0, 2, (ask,), (Fault("kill driver", "after-sinks", 1),), live=True)
    text = str(Plan(9, 40, True, False, False, False, (Life(2, 1, (act,)),)))
    assert "seed 9: 2 files of up to 40 rows, kafka" in text
    assert "live files 0..1: kill driver at after-sinks #1" in text
