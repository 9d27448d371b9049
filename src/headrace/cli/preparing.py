"""`headrace prepare`: a short run, at whose end Java writes the classes it has loaded into one file."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.engine.spark.class_archive import archive_file
from headrace.errors import EnvironmentProblem

__all__ = ["keep_classes"]

# Each kind of operator, so that the classes which any pipeline needs are loaded.
_PIPELINE = """\
name: prepare
streams:
  events:
    source: {format: synthetic, options: {rate: 1000, rows: 4000, epoch: 2000, keys: 20}}
  files:
    source: {format: json, path: in}
    schema: ts TIMESTAMP, key STRING
    time: ts
queries:
  direct:
    sql: SELECT key, COUNT(*) AS n, MAX(amount) AS m FROM events [WINDOW 2 s SLIDE 1 s] GROUP BY key ORDER BY n LIMIT 3
  finished:
    sql: SELECT key, MEDIAN(value) AS p FROM events GROUP BY window(ts, '1 second'), key HAVING COUNT(*) > 1
  pairs:
    sql: SELECT a.key FROM events AS a [RANGE 9 ms] JOIN files AS b [RANGE 9 ms] ON a.key = b.key
  rows: {sql: "SELECT key, AVG(value) AS mean FROM events [PARTITION BY key ROWS 5]"}
  plain: {sql: "SELECT key, upper(key) AS u FROM files WHERE key > 'a'"}
engine: {trigger: 0 seconds, checkpoint: state}
"""
# What a run of the pipeline takes, many times over.
_PATIENCE_S = 600


def keep_classes() -> str:
    """Writes the file, and says what it is; EnvironmentProblem if this Java makes none."""
    file = archive_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            made = Path(folder) / file.name
            said = _run(Path(folder), f"-XX:ArchiveClassesAtExit={made}")
            if not made.exists():
                last = next(iter(said.strip().splitlines()[-1:]), "nothing")
                raise EnvironmentProblem(f"this Java keeps no classes, and Spark starts as ever; it said: {last}")
            # Java maps the file: a start under way goes on with the one it has.
            made.replace(file)
    except subprocess.TimeoutExpired:
        raise EnvironmentProblem(f"Spark did not come to an end within {_PATIENCE_S} s; no classes are kept") from None
    except OSError as error:
        raise EnvironmentProblem(f"the classes cannot be kept in {file.parent}: {error.strerror}") from error
    return f"{file}: {file.stat().st_size / 1e6:.0f} MB of Java classes; starts of Spark take about half the time now"


def _run(folder: Path, option: str) -> str:
    """Runs the pipeline in a folder; what it said, when its Java has ended, too."""
    (folder / "pipeline.yml").write_text(_PIPELINE)
    (folder / "in").mkdir()
    (folder / "in" / "rows.json").write_text('{"ts": "2024-01-01T00:00:00Z", "key": "key0001"}\n')
    command = [sys.executable, "-c", "from headrace.cli import main; main()", "run", str(folder / "pipeline.yml")]
    command += ["--once", "--flush", "--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={option}"]
    # Only what this Python is given says which Java writes the file, and with which options.
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_SUBMIT_OPTS"}
    # Java has our pipe, too: reading ends when it has written the file and is gone.
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace",
                          timeout=_PATIENCE_S, check=False)  # fmt: skip
    return done.stdout + done.stderr
