"""Runs all sites of a pipeline in one Spark application, and shows how each of them goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import typer

from headrace.cli.json_log import JsonLog
from headrace.cli.showing import epoch_line, rejected_lines
from headrace.cli.stopping import Stopped, Stopping
from headrace.engine import Hooks, Manifest, Run, build_session, describe, session_settings, start
from headrace.engine.state.storage import open_storage
from headrace.errors import EngineError, HeadraceError
from headrace.hiding import hide
from headrace.model import EpochDecision, Pipeline
from headrace.sites import SitePart
from headrace.sites.running import ends_of, run_to_the_end

__all__ = ["run_sites"]

# Plain lines of a site at most this often, so that a log stays readable.
LINE_EVERY_S = 1.0
# How often it is looked whether a site has ended, or everything is to.
LOOK_S = 1


@dataclass
class _Lines:
    """Shows what happens at a site, a line each, behind its name."""

    site: str
    checkpoint: str
    last_s: float = field(default=0.0)

    def note(self, text: str) -> None:
        typer.echo(f"note: {self.site}: {hide(text)}", err=True)

    def decision(self, decision: EpochDecision) -> None:
        """The epoch's line says what came of it."""

    def epoch(self, manifest: Manifest) -> None:
        if time.monotonic() - self.last_s >= LINE_EVERY_S:
            self.last_s = time.monotonic()
            typer.echo(f"{self.site}: {epoch_line(describe(self.checkpoint, manifest))}")
            sys.stdout.flush()

    def close(self, manifest: Manifest | None) -> None:
        if manifest is None or manifest.epoch < 0:
            return
        status = describe(self.checkpoint, manifest)
        typer.echo(f"{self.site}: {epoch_line(status)}")
        for line in rejected_lines(status):
            self.note(line)


@dataclass
class _Sites:
    """The sites under way, and what was said of each."""

    spark: Any
    as_json: bool
    once: bool
    stopping: Stopping
    runs: dict[str, Run] = field(default_factory=dict)

    def start(self, part: SitePart, flush: bool | tuple[str, ...]) -> _Ending:
        """Starts a site; of several in one process only the proxy's part can have the metrics page."""
        root = str(part.pipeline.engine.checkpoint)
        watcher: JsonLog | _Lines = JsonLog(root) if self.as_json else _Lines(part.site, root)
        hooks = Hooks(
            on_decision=watcher.decision, on_epoch=watcher.epoch, on_note=watcher.note, on_replayed=self.leave_if_asked
        )
        ends = ends_of(part, limited=not self.once)
        run = start(part.pipeline, self.spark, once=self.once, flush=flush, hooks=hooks, ends=ends)
        self.runs[part.site] = run
        return _Ending(part.site, run, watcher, self)

    def leave_if_asked(self) -> None:
        if self.stopping.asked is not None:
            raise Stopped(self.stopping.asked, None if self.once else 0)


@dataclass
class _Ending:
    """A site under way that is waited for."""

    site: str
    run: Run
    watcher: JsonLog | _Lines
    sites: _Sites

    def await_termination(self) -> None:
        """Waits for its end; Stopped if everything is to end first, EngineError if one of its queries has failed."""
        try:
            while not self.run.await_termination(timeout_s=LOOK_S):
                if self.sites.stopping.asked is not None:
                    self.run.stop()
                    raise Stopped(self.sites.stopping.asked)
        finally:
            self.watcher.close(self.run.progress)
        if self.run.failed:
            raise EngineError(
                "\n".join(f"{self.site}: query '{name}' failed: {cause}" for name, cause in self.run.failed.items())
            )


def run_sites(
    pipeline: Pipeline,
    parts: Mapping[str, SitePart],
    *,
    once: bool,
    flush: bool,
    master: str | None,
    conf: Mapping[str, str],
    as_json: bool = False,
    notes: Sequence[str] = (),
) -> None:
    """Runs all sites until they end by themselves or are stopped; EngineError if a query of one has failed."""
    if not as_json:
        for note in notes:
            typer.echo(f"note: {hide(note)}", err=True)
        typer.echo("starting Spark", err=True)
    proxy = next(site.name for site in pipeline.sites if site.proxy)
    parts = {name: part if name == proxy else _without_metrics(part) for name, part in parts.items()}
    with Stopping() as stopping:
        with stopping.at_once():
            spark = build_session(pipeline.name, master, session_settings(pipeline, conf))
        sites = _Sites(spark, as_json, once, stopping)
        if once:
            run_to_the_end(parts, sites.start, flush, lambda root: open_storage(root, spark))
        else:
            _run_on(sites, parts)


def _run_on(sites: _Sites, parts: Mapping[str, SitePart]) -> None:
    """Runs all sites beside each other until one of them fails or everything is to end; then stops them all."""
    endings, problems = list[_Ending](), list[str]()
    try:
        for part in parts.values():
            endings.append(sites.start(part, False))
        while sites.stopping.asked is None and all(ending.run.is_active for ending in endings):
            with suppress(HeadraceError):  # of a run that has failed the end says why
                endings[0].run.await_termination(timeout_s=LOOK_S)
    finally:
        for ending in endings:
            try:
                ending.run.stop()
            except HeadraceError as failure:
                problems.append(f"{ending.site}: {failure}")
            ending.watcher.close(ending.run.progress)
            problems += (f"{ending.site}: query '{name}' failed: {why}" for name, why in ending.run.failed.items())
    if problems:
        raise EngineError("\n".join(problems))


def _without_metrics(part: SitePart) -> SitePart:
    return replace(part, pipeline=replace(part.pipeline, engine=replace(part.pipeline.engine, metrics=None)))
