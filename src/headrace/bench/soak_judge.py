"""Whether what a soak has seen is flat: by the slopes of all pairs of looks, after a warm-up, carried forward to a day.

A measure grows if even the lower end of what its slope may be (95 %, Sen 1968) is more than it may grow by: where noise
is larger than the slope, an hour tells nothing, and the noise does not count as growth.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.bench.soak_look import Sample

__all__ = ["SERIES", "Series", "Verdict", "judge", "judge_all", "slope"]

DAY_S = 86_400.0
# Memory settles, caches fill and code is compiled at first: the first third is not judged, twenty minutes of an hour.
WARM_UP = 1 / 3
# Standard deviations of a normal distribution within which 95 % of it lie.
Z = 1.96


@dataclass(frozen=True)
class Series:
    """A measure that must be flat: over a day it may grow by half its level, or by `slack` if that is more.

    `slack` is what the measure moves by in an hour without any leak (an allocator's arenas, one more worker).
    """

    name: str
    label: str
    slack: float


SERIES = (
    Series("driver_mb", "driver's Python, MB", 50.0),
    Series("jvm_mb", "JVM, MB", 100.0),
    Series("heap_mb", "JVM's heap in use, MB", 50.0),
    Series("metaspace_mb", "JVM's classes, MB", 50.0),
    Series("workers_mb", "Python workers, MB", 100.0),
    Series("driver_fds", "open files, driver", 20.0),
    Series("jvm_fds", "open files, JVM", 50.0),
    Series("driver_threads", "threads, driver", 10.0),
    Series("jvm_threads", "threads, JVM", 20.0),
    Series("state_files", "checkpoint, files", 50.0),
    Series("state_mb", "checkpoint, MB", 0.5),
    Series("epoch_s", "seconds of an epoch", 0.2),
)


@dataclass(frozen=True)
class Verdict:
    """What came of one series."""

    series: str
    level: float
    grows_per_day: float
    at_least: float
    allowed: float

    @property
    def flat(self) -> bool:
        return self.at_least <= self.allowed

    def __str__(self) -> str:
        said = "flat " if self.flat else "GROWS"
        grows = f"{self.grows_per_day:+10.3f} a day, at least {self.at_least:+.3f}, allowed {self.allowed:.3f}"
        return f"{said} {self.series:15} level {self.level:10.3f}, {grows}"


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The Theil-Sen slope, the median of the slopes of all pairs of points, and the least it may be.

    >>> slope([(0, 1), (1, 2), (2, 3), (3, 400), (4, 5), (5, 6), (6, 7), (7, 8)])
    (1.0, 1.0)
    >>> slope([(0, 5), (1, 7), (2, 4), (3, 6), (4, 8), (5, 5)])[1] < 0
    True
    """
    slopes = sorted((b[1] - a[1]) / (b[0] - a[0]) for i, a in enumerate(points) for b in points[i + 1 :] if b[0] > a[0])
    if not slopes:
        return 0.0, 0.0
    n = len(points)
    spread = Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return statistics.median_low(slopes), slopes[max(0, int((len(slopes) - spread) / 2))]


def judge(series: Series, points: Sequence[tuple[float, float]]) -> Verdict:
    """Whether a measure, as (seconds, value), is flat after its warm-up."""
    known = [(at, value) for at, value in points if not math.isnan(value)]
    if not known:
        return Verdict(series.name, math.nan, 0.0, 0.0, series.slack)
    begin = known[0][0] + (known[-1][0] - known[0][0]) * WARM_UP
    warm = [point for point in known if point[0] >= begin]
    level = statistics.median(value for _, value in warm)
    likely, least = slope(warm)
    return Verdict(series.name, level, likely * DAY_S, least * DAY_S, max(level / 2, series.slack))


def judge_all(samples: Sequence[Sample]) -> list[Verdict]:
    """The verdict on every series."""
    return [judge(series, [(s.at_s, float(getattr(s, series.name))) for s in samples]) for series in SERIES]
