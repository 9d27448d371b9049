"""A task runs in a Python that has numpy, pyarrow and polars, and what the driver sends, and nothing else."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.engine.operators.projection import projection
from headrace.engine.spark.ship import pack
from headrace.kernels.absorb import AbsorbTask, Bounds
from headrace.language import bind_query, parse_schema
from headrace.model import Stream
from headrace.planning import plan_query, share
from headrace.planning.synopsis import AnswerPlan

# All that the Python of such an executor has, besides what comes with every Python.
INSTALLED = ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "polars", "_polars_runtime_32", "polars_runtime_32")
# Runs a task that is given as bytes.
ALONE = """
import pickle, sys

sys.path[:0] = sys.argv[1:3]
import headrace
assert headrace.__file__.startswith(sys.argv[1]), headrace.__file__
task, batches = pickle.loads(open(sys.argv[3], "rb").read())
(made,) = task(iter(batches))
print(made.counts["s"].used, sum(made.rows.values()), len(made.chunks))
"""


def run_alone(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a script in a Python without site packages but these."""
    (folder / "site").mkdir()
    for name in INSTALLED:
        if (there := Path(pa.__file__).parents[1] / name).exists():
            (folder / "site" / name).symlink_to(there)
    command = [sys.executable, "-I", "-S", "-c", script, str(pack(folder)), str(folder / "site"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.fixture
def task(tmp_path: Path) -> AbsorbTask:
    stream = Stream("s", parse_schema("ts TIMESTAMP, k STRING, v INT"), "ts")
    sql = "SELECT k, SUM(v) AS v, MEDIAN(v) AS m FROM s GROUP BY window(ts, '10 seconds'), k"
    plan = plan_query(bind_query("q", sql, {"s": stream}))
    assert isinstance(plan, AnswerPlan)
    kept = tuple(share({"q": plan}, [stream]).kept.values())
    (tmp_path / "state").mkdir()
    bounds = (Bounds(0, 10**15),)
    return AbsorbTask(str(tmp_path / "state"), 0, bounds, projection([stream], kept, bins=1))


def test_rows_are_absorbed_where_nothing_else_is_installed(task: AbsorbTask, tmp_path: Path) -> None:
    columns = [text.rpartition(" AS ")[2] for text in task.projection.select]
    values = {name: pa.array(["a", "b", "a"] if name != "_t" and "k" in sql else [1, 2, 3])
              for name, sql in zip(columns, task.projection.select, strict=True)}  # fmt: skip
    (tmp_path / "task").write_bytes(pickle.dumps((task, [pa.record_batch(values)])))
    done = run_alone(ALONE, tmp_path, str(tmp_path / "task"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "3", "all rows are used"
    assert done.stdout.split()[2] == "1", "they are in one chunk"


def test_what_is_not_installed_there_is_missed(tmp_path: Path) -> None:
    done = run_alone(ALONE.replace("import headrace\n", "import headrace\nimport sqlglot\n"), tmp_path, "none")
    assert "No module named 'sqlglot'" in done.stderr


def test_what_is_missing_is_told_where_it_is_missing(tmp_path: Path) -> None:
    script = """
import sys
sys.path[:0] = sys.argv[1:2]
from headrace.kernels.lacking import find_lacking
print("; ".join(find_lacking({"numpy": "1", "pyarrow": "2", "polars": "3"}, [0])))
"""
    done = run_alone(script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(f"lack {name} in " in done.stdout for name in ("numpy", "pyarrow", "polars"))
