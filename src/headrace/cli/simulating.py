"""What `simulate` does: reads a pipeline and what is known of it, plays it, and says what would happen."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from headrace.errors import SpecError
from headrace.hiding import hidden, hide
from headrace.language import load_pipeline
from headrace.planning import Recorded
from headrace.reproduce.figure import Made, Picture
from headrace.reproduce.report import draw_picture
from headrace.simulation.whatif import (
    COLUMNS,
    Found,
    Prediction,
    Scenario,
    Setup,
    epoch_rows,
    find_hosts,
    find_rate,
    found_text,
    prediction_json,
    prediction_text,
    set_up,
    simulate,
)

__all__ = ["show_simulation"]

FINDS: dict[str, Callable[[Setup, Scenario], Found]] = {"rate": find_rate, "hosts": find_hosts}


def show_simulation(
    spec: Path, scenario: Scenario, measured: str | None, find: str | None, out: Path | None, as_json: bool
) -> None:
    """Prints what a pipeline would do in a scenario, or the limit that was asked for; `out` gets rows and pictures."""
    if find is not None and find not in FINDS:
        raise SpecError(f"--find {find}: what can be found is {' or '.join(FINDS)}")
    pipeline = load_pipeline(spec)
    setup = set_up(pipeline, None if measured is None else _recorded(measured), scenario.hosts)
    for note in pipeline.notes:
        typer.echo(f"note: {hide(note)}", err=True)
    limit = None
    waiting = nullcontext() if as_json else Console(stderr=True).status("simulating")
    with waiting:
        if find is None:
            prediction = simulate(setup, scenario)
        else:
            limit = FINDS[find](setup, scenario)
            prediction = limit.prediction
    if out is not None:
        _write(out, prediction)
    if as_json:
        value = prediction_json(prediction)
        if limit is not None:
            value = {"find": find, "found": limit.holds, "simulations": limit.tried, **value}
        typer.echo(json.dumps(hidden(value)))
        return
    if limit is not None and find is not None:
        typer.echo(hide(found_text(find, limit)) + "\n")
    typer.echo(hide(prediction_text(prediction)))
    if out is not None:
        typer.echo(f"\nrows and pictures: {out}")


def _recorded(root: str) -> Recorded:
    from headrace.engine.watch.recorded import read_recorded

    return read_recorded(root)


# Files of `--out`: columns of the rows, their unit, and what their pictures say.
PICTURES = {
    "lag.png": (("lag_s",), "seconds", "seconds that the oldest row has waited at the end of its epoch"),
    "epochs.png": (("admit_s", "absorb_s", "answer_s"), "seconds", "seconds of an epoch's parts"),
    "rows.png": (("rows", "waiting"), "rows", "rows that epochs take, and that wait"),
}


def _write(out: Path, prediction: Prediction) -> None:
    rows = epoch_rows(prediction)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "epochs.csv").open("w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(rows)
        (out / "summary.txt").write_text(hide(prediction_text(prediction)) + "\n")
    except OSError as exc:
        raise SpecError(f"--out {out}: {exc.strerror or exc}") from exc
    for name, (columns, unit, title) in PICTURES.items():
        _draw(out / name, rows, columns, unit, f"{prediction.pipeline}: {title}")


def _draw(path: Path, rows: list[tuple[Any, ...]], columns: tuple[str, ...], unit: str, title: str) -> None:
    """A line for each of some columns, over the minutes."""
    began = COLUMNS.index("began_s")
    points = tuple((row[began] / 60, row[COLUMNS.index(name)], name) for name in columns for row in rows)
    draw_picture(path, hide(title), Made(("minutes", unit, "what"), points, ()), Picture("minutes", unit, "what"))
