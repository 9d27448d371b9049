"""Pictures of benchmark results, where people would rather look than read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.errors import SpecError

__all__ = ["draw"]


def draw(result: dict[str, Any], path: Path) -> None:
    """Draws a benchmark's result to a file whose name says in which form (png, svg, pdf)."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise SpecError("pictures need matplotlib: pip install 'headrace[plot]'") from None
    matplotlib.use("Agg")
    pictures = {"sharing --policies": _policies, "join": _swapped, "flux": _flux, "shedding": _shedding}
    if result["bench"] not in pictures:
        raise SpecError(f"bench '{result['bench']}' has no picture; those that have: {', '.join(pictures)}")
    figure = pictures[result["bench"]](result["measures"])
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _policies(measures: dict[str, Any]) -> Any:
    """Re-executions per second and mean lateness of the schedules, one bar each."""
    from matplotlib.figure import Figure

    table = measures["policies"]
    figure = Figure(figsize=(9, 3.2))
    panels = (
        ("executions_per_s", "re-executions per second", "more is better"),
        ("lateness_panes", "panes late, on average", "less is better"),
    )
    for axes, (key, label, hint) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        bars = axes.barh(list(table), [row[key] for row in table.values()], color="#3d6f99")
        axes.bar_label(bars, fmt="%.1f", padding=3)
        axes.set_xlabel(f"{label} ({hint})")
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].invert_yaxis()
    figure.suptitle(
        f"{measures['queries']} queries; all that is due would take {measures['full_epoch_s']:.2f} s, "
        f"an epoch has {measures['trigger_s']:.2f} s"
    )
    return figure


def _swapped(measures: dict[str, Any]) -> Any:
    """Rows a split join sends to its hosts per epoch, while the rates of its sides swap."""
    from matplotlib.figure import Figure

    swap = measures["swap"]
    figure = Figure(figsize=(7, 3.2))
    axes = figure.subplots()
    axes.step(range(len(swap["sent"])), swap["sent"], where="mid", color="#3d6f99", label="rows sent to hosts")
    axes.axhline(swap["formula"], color="#888", linestyle="--", label="formula: split once, copied to all")
    axes.axvline(swap["swapped_at"] - 0.5, color="#b5523b", label="the rates swap")
    switched = next((i for i, side in enumerate(swap["split"]) if side != swap["split"][0]), None)
    if switched is not None:
        axes.axvline(switched - 0.5, color="#5b8f4e", label="the roles switch")
    axes.set_xlabel("epoch")
    axes.set_ylabel("rows")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _flux(measures: dict[str, Any]) -> Any:
    """Rows per second of every epoch, with moves and without, for each kind of trouble."""
    from matplotlib.figure import Figure

    titles = {
        "skew": "80 % of rows to 20 % of keys",
        "slow": "one executor at 40 %",
        "memory": "one memory halved",
        "alternating": "the skew changes sides",
    }
    troubles = {trouble: title for trouble, title in titles.items() if f"{trouble}_flux" in measures}
    figure = Figure(figsize=(3.6 * len(troubles), 3.2), layout="constrained")
    for axes, (trouble, title) in zip(figure.subplots(1, len(troubles), sharey=True), troubles.items(), strict=True):
        for side, colour in (("static", "#b0643c"), ("flux", "#3d6f99")):
            axes.plot(measures[f"{trouble}_{side}"]["rows_per_s"], label=side, color=colour)
        axes.axvline(measures["trouble_at_epoch"], color="#999999", linestyle=":")
        axes.set_title(title)
        axes.set_xlabel("epoch")
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("rows per second")
    figure.axes[0].set_ylim(bottom=0)
    figure.axes[0].legend()
    return figure


def _shedding(measures: dict[str, Any]) -> Any:
    """Two queries of which an engine has time for half the rows: how late they are, and what they get."""
    from matplotlib.figure import Figure

    made = measures["two_queries"]
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    late, got = figure.subplots(1, 2)
    for side, label, colour in (("off", "without shedding", "#b0643c"), ("shedding", "shedding: fit", "#3d6f99")):
        late.plot(made[side]["at_s"], made[side]["lags_s"], label=label, color=colour)
    late.set_xlabel("seconds")
    late.set_ylabel("seconds that rows are behind")
    rows = made["shedding"]["rows"]
    epochs = range(len(rows))
    cheap, dear = ([each.get(query, 0) for each in rows] for query in ("cheap", "dear"))
    got.bar(epochs, cheap, color="#3d6f99", label=f"cheap, {1e6 * made['costs_s']['cheap']:.0f} us a row")
    got.bar(epochs, dear, bottom=cheap, color="#9dbbd3", label=f"dear, {1e6 * made['costs_s']['dear']:.0f} us a row")
    got.step(epochs, made["shedding"]["best_rows"], where="mid", color="#333333", label="the optimum")
    got.set_xlabel("epoch")
    got.set_ylabel("rows that reached answers")
    for axes in (late, got):
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    return figure
