"""The picture of a soak: every series over time, with the line its slope makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.bench.soak_judge import DAY_S, SERIES, Verdict
from headrace.bench.soak_look import Sample

__all__ = ["draw_soak"]

# Drawn, and not judged: they grow with what is read and answered, by nature.
_APART = (
    ("code_mb", "JVM's compiled code, MB"),
    ("sink_files", "sinks, files"),
    ("source_log_mb", "Spark's list of files read, MB"),
)


def draw_soak(samples: Sequence[Sample], verdicts: Sequence[Verdict], path: Path) -> None:
    """Draws to a file whose name says in which form."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    minutes = [sample.at_s / 60 for sample in samples]
    figure = Figure(figsize=(14, 13), layout="constrained")
    panels = [(series.name, series.label) for series in SERIES] + list(_APART)
    known = {verdict.series: verdict for verdict in verdicts}
    for axes, (name, label) in zip(figure.subplots(5, 3, sharex=True).flat, panels, strict=True):
        values = [float(getattr(sample, name)) for sample in samples]
        axes.plot(minutes, values, color="#3d6f99", linewidth=1)
        verdict = known.get(name)
        if verdict is not None:
            middle = (minutes[0] + minutes[-1]) / 2
            line = [verdict.level + verdict.grows_per_day * (at - middle) * 60 / DAY_S for at in minutes]
            axes.plot(minutes, line, color="#b5523b", linestyle="--", linewidth=1)
            axes.set_title(f"{label}: {verdict.grows_per_day:+.3g} a day", fontsize=9)
        else:
            axes.set_title(f"{label} (not judged)", fontsize=9)
        top = max((value for value in values if value == value), default=1.0)
        axes.set_ylim(0, top * 1.15 or 1)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in figure.axes[-3:]:
        axes.set_xlabel("minutes")
    epochs = samples[-1].epoch + 1
    figure.suptitle(f"{epochs} epochs in {minutes[-1]:.0f} minutes, queries coming and going")
    figure.savefig(path, dpi=110)
