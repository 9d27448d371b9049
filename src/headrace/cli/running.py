"""Runs a pipeline in the foreground and shows how it goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import typer
from rich.console import Console
from rich.live import Live

from headrace.cli.checking import examine
from headrace.cli.json_log import JsonLog
from headrace.cli.rereading import Rereading
from headrace.cli.showing import epoch_line, live_view, rejected_lines
from headrace.cli.stopping import Stopped, Stopping
from headrace.engine import Hooks, Manifest, Run, build_session, describe, session_settings, start
from headrace.errors import EngineError, SpecError
from headrace.hiding import hide
from headrace.model import EpochDecision, LinkEnds, Pipeline
from headrace.planning import plan_query

__all__ = ["run_pipeline"]

# Plain lines at most this often, so that a log stays readable.
LINE_EVERY_S = 1.0


class _Watcher(Protocol):
    """Is told what happens in a run."""

    def note(self, text: str) -> None: ...

    def decision(self, decision: EpochDecision) -> None: ...

    def epoch(self, manifest: Manifest) -> None: ...

    def close(self, manifest: Manifest | None) -> None: ...


class _Shown:
    """Shows epochs as they are committed."""

    def __init__(self, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._live: Live | None = None
        self._last_s = 0.0
        self._line = ""
        console = Console()
        if console.is_terminal:
            self._live = Live("starting Spark", console=console, refresh_per_second=4)
            self._live.start()
        else:
            typer.echo("starting Spark", err=True)

    def note(self, text: str) -> None:
        typer.echo(f"note: {hide(text)}", err=True)

    def decision(self, decision: EpochDecision) -> None:
        """The epoch's line says what came of it."""

    def epoch(self, manifest: Manifest) -> None:
        status = describe(self._checkpoint, manifest)
        if self._live is not None:
            self._live.update(live_view(status))
        elif time.monotonic() - self._last_s >= LINE_EVERY_S:
            self._last_s = time.monotonic()
            self._line = epoch_line(status)
            typer.echo(self._line)
        sys.stdout.flush()

    def close(self, manifest: Manifest | None) -> None:
        if self._live is not None:
            self._live.stop()
        if manifest is None or manifest.epoch < 0:
            return
        status = describe(self._checkpoint, manifest)
        if self._live is None:
            shown = epoch_line(status) == self._line
            Console(width=140).print(live_view(status, with_epoch=not shown))
        for line in rejected_lines(status):
            self.note(line)


def run_pipeline(
    pipeline: Pipeline,
    *,
    once: bool,
    flush: bool,
    master: str | None,
    conf: Mapping[str, str],
    spec: Path | None = None,
    as_json: bool = False,
    notes: Sequence[str] = (),
    ends: LinkEnds | None = None,
) -> Manifest:
    """Runs until it ends by itself or is stopped; gives the last manifest. Edits of `spec` are taken over.

    `ends` are the links of the site that this is the part of.

    EngineError, once the other queries have finished, if some have failed.
    """
    _refuse(pipeline)
    root = str(pipeline.engine.checkpoint)
    watcher: _Watcher = JsonLog(root) if as_json else _Shown(root)
    for note in notes:
        watcher.note(note)
    manifest: Manifest | None = None
    rereading = (
        None if spec is None else Rereading(spec, pipeline, watcher.note, lambda edited: examine(edited, conf).sound())
    )
    try:
        with Stopping(watcher.note) as stopping:
            with stopping.at_once():
                spark = build_session(pipeline.name, master, session_settings(pipeline, conf))

            def leave_if_asked() -> None:
                if stopping.asked is not None:
                    raise Stopped(stopping.asked, None if once else 0)

            hooks = Hooks(
                on_decision=watcher.decision, on_epoch=watcher.epoch, on_note=watcher.note, on_replayed=leave_if_asked
            )
            run = start(pipeline, spark, once=once, flush=flush, hooks=hooks, ends=ends)
            try:
                ended = _ended_by_itself(run, stopping, rereading)
            finally:
                manifest = run.progress
    finally:
        watcher.close(manifest)
    if run.failed:
        raise EngineError("\n".join(f"query '{name}' failed: {cause}" for name, cause in run.failed.items()))
    if once and not ended and stopping.asked is not None:
        raise Stopped(stopping.asked)
    return manifest


def _refuse(pipeline: Pipeline) -> None:
    """SpecError for what this version does not run, before Spark starts."""
    if not pipeline.queries:
        raise SpecError(f"pipeline '{pipeline.name}' has no query to run")
    for query in pipeline.queries:
        plan_query(query)


def _ended_by_itself(run: Run, stopping: Stopping, rereading: Rereading | None) -> bool:
    """Waits for the end of a run, whose pipeline file is read again when it is edited; False if it was stopped."""
    if rereading is not None:
        rereading.start(run)
    try:
        # In pieces: a signal that broke into a call of Spark's would fill standard error with its complaints.
        while not run.await_termination(timeout_s=1):
            if stopping.asked is not None:
                run.stop()
                return False
        return True
    finally:
        if rereading is not None:
            rereading.stop()
