"""What `headrace reproduce` leaves: a CSV file and a picture per figure, and one report in Markdown."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.errors import SpecError
from headrace.reproduce.figure import Claim, Figure, Made, Paper, Picture, Value

__all__ = ["draw_picture", "report_text", "write_figure", "write_report"]

# One made figure of a paper.
Found = tuple[Paper, Figure, Made]


def write_figure(out: Path, paper: Paper, figure: Figure, made: Made) -> None:
    """Writes a figure's rows and pictures to `out`, which is made if it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / f"{_stem(paper, figure)}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(made.columns)
        writer.writerows([_plain(value) for value in row] for row in made.rows)
    for number, picture in enumerate(made.pictures):
        draw_picture(
            out / _picture(paper, figure, number), f"{paper.name} {figure.name}: {figure.title}", made, picture
        )


def write_report(out: Path, found: Sequence[Found], how: str = "headrace reproduce") -> Path:
    """Writes the report over figures that are written already; `how` is the command that made them."""
    path = out / "README.md"
    path.write_text(report_text(found, how))
    return path


def report_text(found: Sequence[Found], how: str) -> str:
    """All claims of some figures with what was found, a section per figure."""
    claims = [claim for _, _, made in found for claim in made.claims]
    agree = sum(claim.holds for claim in claims)
    lines = ["# The papers' experiments, reproduced", ""]
    lines += [f"Made by `{how}`. {agree} of {len(claims)} claims hold.", ""]
    for paper, figure, made in found:
        lines += [f"## {paper.name} {figure.name}: {figure.title}", "", f"From: {paper.title}.", ""]
        lines += _claims(made.claims)
        lines += [f"![{figure.title}]({_picture(paper, figure, n)})" for n in range(len(made.pictures))]
        lines += ["", f"Rows: [{_stem(paper, figure)}.csv]({_stem(paper, figure)}.csv)", ""]
        lines += [f"{note}\n" for note in made.notes]
    return "\n".join(lines).rstrip() + "\n"


def _claims(claims: Sequence[Claim]) -> list[str]:
    if not claims:
        return []
    rows = [
        f"| {claim.text} | {claim.paper} | {claim.ours} | {'pass' if claim.holds else 'differs'} | {claim.reason} |"
        for claim in claims
    ]
    return ["| claim | paper | here | | why it differs |", "|---|---|---|---|---|", *rows, ""]


def _stem(paper: Paper, figure: Figure) -> str:
    return f"{paper.name}-{figure.name}"


def _picture(paper: Paper, figure: Figure, number: int) -> str:
    return f"{_stem(paper, figure)}{'' if number == 0 else f'-{number + 1}'}.png"


def _plain(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def draw_picture(path: Path, title: str, made: Made, picture: Picture) -> None:
    """Draws columns of some rows to a file."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise SpecError("pictures need matplotlib: pip install 'headrace[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib.figure import Figure as Canvas

    canvas: Any = Canvas(figsize=(7.5, 4))
    axes: Any = canvas.subplots()
    at = {name: made.columns.index(name) for name in made.columns}
    series: dict[Value, list[tuple[Value, Value]]] = {}
    for row in made.rows:
        key = picture.y if picture.by is None else row[at[picture.by]]
        series.setdefault(key, []).append((row[at[picture.x]], row[at[picture.y]]))
    for number, (key, points) in enumerate(series.items()):
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if picture.bars:
            width = 0.8 / len(series)
            axes.bar([i + number * width for i in range(len(xs))], ys, width, label=str(key))
            axes.set_xticks([i + 0.4 - width / 2 for i in range(len(xs))], [str(x) for x in xs])
        else:
            axes.plot(xs, ys, marker="." if len(xs) < 40 else None, label=str(key))
    axes.set_xlabel(picture.x)
    axes.set_ylabel(picture.y)
    if picture.log_y:
        axes.set_yscale("log")
    if picture.by is not None:
        axes.legend(frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, fontsize="medium")
    # Without the time of its making, the same seed makes the same file.
    canvas.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
