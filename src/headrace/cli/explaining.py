"""What `explain` prints: text, plain values, a flowchart, or a map."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from headrace import planning
from headrace.errors import SpecError
from headrace.hiding import hidden, hide
from headrace.language import load_pipeline
from headrace.model import Pipeline
from headrace.policies.placement import Infeasible

__all__ = ["show_plan"]


def show_plan(spec: Path, form: str, measured: str | None) -> None:
    """Prints what a pipeline would do, as text, json, mermaid or svg; with rates that a checkpoint has measured."""
    pipeline = load_pipeline(spec)
    known = None
    if measured is not None:
        from headrace.engine.watch.rates import known_rates

        known = known_rates(measured)
    for note in pipeline.notes:
        typer.echo(f"note: {hide(note)}", err=True)
    match form:
        case "json":
            typer.echo(json.dumps(hidden(planning.explain(pipeline, known))))
        case "mermaid" | "svg":
            typer.echo(hide(_drawn(pipeline, form, known)))
        case _:
            typer.echo(hide(planning.explain_text(pipeline, known)))


def _drawn(pipeline: Pipeline, form: str, known: planning.KnownRates | None) -> str:
    workload, _ = planning.plan_pipeline(pipeline)
    if pipeline.network is None:
        if form == "svg":
            raise SpecError("--svg draws a map of sites, and this pipeline has none; --mermaid draws its graph")
        return planning.draw_graph(planning.build_graph(workload, pipeline.streams))
    placed = planning.place(pipeline, workload, known)
    if isinstance(placed.found, Infeasible):
        raise SpecError(f"there is no placement to draw: {placed.found.reason}")
    if form == "mermaid":
        return planning.draw_mermaid(placed.problem, placed.found)
    at = {site.name: site.at for site in pipeline.sites if site.at is not None}
    return planning.draw_svg(placed.problem, placed.found, at, pipeline.name)
