"""The demo: a small network that is watched by queries which share, join, keep state, and come while others run.

It ends with the same windows in plain Spark, one StreamingQuery each, for comparison.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

import headrace as hr
from headrace.cli.demo_world import CHAPTERS, PIPELINE, Chapter, plain_rows_per_s
from headrace.cli.showing import epoch_line, join_lines
from headrace.cli.showing_keyed import keyed_lines
from headrace.engine import Hooks, Manifest, Run, build_session, describe
from headrace.errors import EngineError

__all__ = ["run_demo"]

# Epochs over which rows per second are shown, and lines in a log that is no terminal.
RECENT, LINE_EVERY_S = 8, 3.0
# Lines about decisions that are not said again in a log.
SAID = 50
# Length of the longest bar.
BAR = 32


def run_demo(folder: Path | None) -> None:
    """Writes the demo's pipeline file, tells its story while it runs, and shows what came of it."""
    console = Console()
    home = folder or Path(tempfile.mkdtemp(prefix="headrace-demo-"))
    home.mkdir(parents=True, exist_ok=True)
    spec = home / "pipeline.yml"
    spec.write_text(PIPELINE, encoding="utf-8")
    console.print(f"The pipeline file is {spec}; starting Spark takes some seconds.", highlight=False, soft_wrap=True)
    story = _Story(console, home)
    manifest = story.play(hr.Pipeline.from_file(spec))
    console.print("\nThe same twelve windows in plain Spark, one StreamingQuery each ...")
    _compare(console, story.rows_per_s, plain_rows_per_s(home))
    entry = manifest.ledger["packets"]
    console.print(
        f"\nEvery packet is accounted for: {entry.rows_in:,} in = {entry.used:,} used + {entry.late:,} late + "
        f"{entry.shed:,} shed + {entry.rejected:,} rejected.\n"
        f"Answers are Parquet files under {home / 'out'}. Look around:\n"
        f"  headrace status {home / 'state'}\n"
        f"  headrace explain {spec}",
        highlight=False,
        soft_wrap=True,
    )


class _Story:
    """One run, told in chapters: each begins at an epoch, and may add a query."""

    def __init__(self, console: Console, home: Path) -> None:
        self._console, self._home = console, home
        self._live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._chapter = CHAPTERS[0]
        self._ended: deque[tuple[float, int]] = deque(maxlen=RECENT)
        self._said_s, self._said = 0.0, list[str]()
        self.rows_per_s = 0.0

    def play(self, pipe: hr.Pipeline) -> Manifest:
        """Runs the pipeline to its end; gives the last manifest."""
        spark = build_session("demo", conf={"spark.driver.memory": "2g"})
        try:
            if self._live is not None:
                self._live.start()
            self._open(self._chapter)
            run = pipe.start(spark, hooks=Hooks(on_epoch=self._epoch))
            for chapter in CHAPTERS[1:]:
                self._wait_until(run, chapter.epoch)
                if chapter.sql is not None and run.is_active:
                    run.add_query(chapter.query, chapter.sql, sink=hr.parquet(str(self._home / "out" / chapter.query)))
                self._open(chapter)
            run.process_all_available()
            run.flush()
            run.stop()
        finally:
            if self._live is not None:
                self._live.stop()
            spark.stop()
        if run.failed:
            raise EngineError("\n".join(f"query '{name}' failed: {cause}" for name, cause in run.failed.items()))
        self._console.print(_talkers(self._home, self._last_us(run.progress)))
        return run.progress

    def _wait_until(self, run: Run, epoch: int) -> None:
        while run.is_active and run.progress.epoch < epoch:
            time.sleep(0.05)

    def _open(self, chapter: Chapter) -> None:
        self._chapter = chapter
        if self._live is None:
            self._console.print(f"\n{chapter.title}\n{chapter.text}", highlight=False, soft_wrap=True)

    def _epoch(self, manifest: Manifest) -> None:
        """Shows an epoch; called as soon as it is committed."""
        status = describe(str(self._home / "state"), manifest)
        self._ended.append((time.monotonic(), manifest.ledger["packets"].rows_in))
        (began, before), (ended, after) = self._ended[0], self._ended[-1]
        rate = (after - before) / (ended - began) if after > before else 0.0
        if self._chapter.sql is None:
            # What plain Spark is compared with: the twelve windows, before anything else runs.
            self.rows_per_s = rate
        if self._live is not None:
            self._live.update(self._view(status, manifest, rate))
        elif ended - self._said_s >= LINE_EVERY_S:
            self._said_s = ended
            new = [line for line in _why(status) if line not in self._said]
            self._said = [*self._said, *new][-SAID:]
            lines = [epoch_line(status).partition(", windows answered")[0], *new]
            self._console.print("\n".join(lines), highlight=False, soft_wrap=True)

    def _view(self, status: dict[str, Any], manifest: Manifest, rate: float) -> Group:
        chapter, rows = self._chapter, manifest.ledger["packets"].rows_in
        jobs = f"epoch {manifest.epoch}: {manifest.observed.jobs} Spark jobs for {len(manifest.queries)} queries"
        return Group(
            Panel(chapter.text, title=chapter.title, title_align="left", width=100),
            _talkers(self._home, self._last_us(manifest)),
            f"{rows:,} packets so far, {rate:,.0f} a second; {jobs}",
            *_why(status),
        )

    def _last_us(self, manifest: Manifest) -> int:
        return manifest.clocks["packets"].last_us or 0


def _why(status: dict[str, Any]) -> list[str]:
    """What was decided about joins and state by key, and why."""
    keyed = keyed_lines(status)
    return [*join_lines(status)[:1], *keyed[:1], *[line for line in keyed if "moved in epoch" in line][-2:]]


def _talkers(home: Path, last_us: int) -> Table:
    """The hosts that sent the most in the newest minute that is answered in full, as bars."""
    table = Table(title="top_talkers: bytes in the last minute", title_justify="left", box=None, show_header=False)
    files = sorted((home / "out" / "top_talkers").glob("epoch-*.parquet"))
    rows = [row for file in files[-2:] for row in pq.read_table(file).to_pylist()]
    full = [row for row in rows if row["window_end"].timestamp() * 1e6 <= last_us]
    if not full:
        return table
    end = max(row["window_end"] for row in full)
    newest = sorted((row for row in full if row["window_end"] == end), key=lambda row: -row["bytes"])
    for row in newest:
        bar = "█" * max(1, round(BAR * row["bytes"] / newest[0]["bytes"]))
        table.add_row(f"{row['host']}", bar, f"{row['bytes']:,}", f"until {end:%H:%M:%S}" if row is newest[0] else "")
    return table


def _compare(console: Console, ours: float, theirs: float) -> None:
    """Rows per second of both sides, as bars."""
    table = Table(box=None, show_header=False)
    for name, rate in (("Headrace", ours), ("plain Spark", theirs)):
        bar = "█" * max(1, round(BAR * rate / max(ours, theirs, 1.0)))
        table.add_row(name, bar, f"{rate:,.0f} packets a second" if rate else "no packet through all twelve in time")
    console.print(table)
