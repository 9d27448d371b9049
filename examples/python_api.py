"""Two continuous queries over a folder of Parquet files, from Python, with the results in memory.

Run it after `./run setup`, which prints the Java it found:

    JAVA_HOME=<that folder> .venv/bin/python examples/python_api.py
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headrace as hr
from headrace.engine import build_session

START = datetime(2024, 1, 1, tzinfo=UTC)


def write_trades(folder: Path) -> None:
    """Four files of one minute each, a trade per second; each file becomes one epoch."""
    folder.mkdir()
    for minute in range(4):
        seconds = range(60 * minute, 60 * minute + 60)
        columns = {
            "ts": pa.array([START + timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC")),
            "symbol": ["ACME" if s % 3 else "ZINC" for s in seconds],
            "price": [100.0 + s % 7 for s in seconds],
        }
        pq.write_table(pa.table(columns), folder / f"{minute}.parquet")


def main() -> None:
    home = Path(tempfile.mkdtemp(prefix="headrace-example-"))
    write_trades(home / "trades")
    spark = build_session("example", "local[2]")
    trades = (
        spark.readStream.schema("ts TIMESTAMP, symbol STRING, price DOUBLE")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(home / "trades"))
    )

    pipe = hr.Pipeline("example")
    pipe.stream("trades", trades, time="ts", lateness="5 seconds")
    pipe.query("prices", "SELECT symbol, AVG(price) AS mean FROM trades [WINDOW 2 min SLIDE 1 min] GROUP BY symbol")
    pipe.query("volume", "SELECT COUNT(*) AS trades FROM trades GROUP BY window(ts, '1 minute')", sink=hr.console())

    run = pipe.start(spark, checkpoint=str(home / "state"), once=True, flush=True)
    run.await_termination()
    for row in run.table("prices").sort_by([("window_end", "ascending"), ("symbol", "ascending")]).to_pylist():
        print(f"{row['window_end']:%H:%M}  {row['symbol']}  {row['mean']:.2f}")
    print(run.progress.ledger["trades"])
    spark.stop()


if __name__ == "__main__":
    main()
