"""What `reproduce` does: makes the figures that were asked for, and says which claims hold."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.errors import SpecError
from headrace.reproduce import Settings, chosen, write_report
from headrace.reproduce.report import write_figure

__all__ = ["numbers_given", "reproduce"]


def reproduce(paper: str | None, figures: Sequence[str], settings: Settings, out: Path) -> None:
    """Makes figures one after the other, with a progress bar each, and prints every claim with what was found."""
    wanted = [(each, figure) for each in chosen(paper) for figure in each.only(tuple(figures))]
    known = {name for _, figure in wanted for name in figure.numbers}
    for name in settings.given:
        if name not in known:
            raise SpecError(f"--set {name}: no such number; there are {', '.join(sorted(known)) or 'none'}")
    found = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        for each, figure in wanted:
            bar = bars.add_task(f"{each.name} {figure.name}", total=None)

            def told(done: int, of: int, bar: object = bar) -> None:
                bars.update(bar, completed=done, total=of)  # type: ignore[arg-type]

            made = figure.make(replace(settings, progress=told, clock=time.process_time))
            bars.update(bar, completed=1, total=1)
            write_figure(out, each, figure, made)
            found.append((each, figure, made))
    for each, figure, made in found:
        for claim in made.claims:
            verdict = "pass   " if claim.holds else "differs"
            typer.echo(f"{verdict} {each.name} {figure.name}: {claim.text}: paper {claim.paper}, here {claim.ours}")
    numbers = [f"--set {name}={value:g}" for name, value in settings.given.items()]
    words = [
        "headrace reproduce",
        paper or "",
        "--quick" if settings.quick else "",
        f"--seed {settings.seed}",
        *numbers,
    ]
    typer.echo(f"report: {write_report(out, found, ' '.join(filter(None, words)))}")


def numbers_given(items: Sequence[str]) -> Mapping[str, float]:
    """The numbers of `--set NAME=NUMBER`.

    >>> numbers_given(["nodes=64"])
    {'nodes': 64.0}
    """
    found: dict[str, float] = {}
    for item in items:
        name, equals, value = item.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise SpecError(f"--set {item}: write NAME=NUMBER, such as --set nodes=64")
    return found
