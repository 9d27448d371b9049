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
    pictures = {"sharing --policies": _policies}
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
