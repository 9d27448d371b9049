"""Files that say how far places are apart: round trips in a CSV matrix, or a topology with coordinates in GML.

Latencies need not be a metric, so what counts between two places is the shortest path over all places of the file, also
those where nothing runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SpecError
from headrace.language.pipeline.files import read_text
from headrace.language.pipeline.yaml_nodes import Document
from headrace.model import Network

__all__ = [
    "MOST_LATENCY_MS",
    "MOST_PLACES",
    "Latencies",
    "NetworkFile",
    "great_circle_ms",
    "load_network_file",
    "note_detours",
    "shortest_paths",
]

Latencies = NDArray[np.float64]
# A day: no link is slower.
MOST_LATENCY_MS = 86_400_000
# Shortest paths between so many take about a second; PlanetLab's matrix has 490 places, the largest topology 754.
MOST_PLACES = 1_000
# A matrix of so many places, with 15 characters a number.
MOST_FILE_BYTES = 16_000_000
# A file that is wrong throughout is described by its first mistakes.
MOST_PROBLEMS = 20
# Light in glass travels at two thirds of its speed in vacuum: kilometres per millisecond.
FIBRE_KM_PER_MS = 299.792458 * 2 / 3
EARTH_KM = 6371.0


@dataclass(frozen=True)
class NetworkFile:
    """Places by name, the one-way milliseconds between them along shortest paths, and where they are if that is known.

    Two places without a path have infinity between them. `notes` say how the file was read where that is no matter of
    course.
    """

    names: tuple[str, ...]
    latency_ms: Latencies
    at: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def network(self) -> Network:
        """All places as a network; SpecError if there is no path between some."""
        apart = [name for name, ms in zip(self.names, self.latency_ms[0], strict=True) if math.isinf(ms)]
        if apart:
            raise SpecError(f"there is no path from {self.names[0]} to {len(apart)} places, such as {apart[0]}")
        return Network(self.names, tuple(tuple(map(float, row)) for row in self.latency_ms))


def shortest_paths(direct: Latencies) -> Latencies:
    """The shortest way between each two places, given the direct ones (infinity where there is none).

    >>> inf = math.inf
    >>> shortest_paths(np.array([[0, 10, 50], [10, 0, inf], [50, inf, 0]]))[1]
    array([10.,  0., 60.])
    """
    found = np.array(direct, dtype=float)
    np.fill_diagonal(found, 0.0)
    for over in range(len(found)):
        np.minimum(found, found[:, over, None] + found[None, over, :], out=found)
    return found


def great_circle_ms(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Milliseconds of light in a straight fibre between two latitudes and longitudes, in degrees.

    >>> round(great_circle_ms((48.86, 2.35), (40.71, -74.01)), 1)  # Paris to New York
    29.2
    """
    (lat, lon), (other, away) = ((math.radians(x), math.radians(y)) for x, y in (a, b))
    half = math.sin((other - lat) / 2) ** 2 + math.cos(lat) * math.cos(other) * math.sin((away - lon) / 2) ** 2
    return 2 * EARTH_KM * math.asin(min(1.0, math.sqrt(half))) / FIBRE_KM_PER_MS


def note_detours(direct: Latencies, shortest: Latencies) -> str | None:
    """That pairs with a direct latency are nearer over others, if some are: a file is then no metric."""
    pairs = np.triu(np.isfinite(direct), 1)
    # Half a microsecond is rounding.
    nearer = int(np.sum(pairs & (shortest < direct - 5e-4)))
    if nearer == 0:
        return None
    return f"{nearer} of {int(np.sum(pairs))} pairs are nearer over other places than directly; shortest paths count"


def load_network_file(path: Path, read: Callable[[str, Document], NetworkFile | None]) -> NetworkFile:
    """A network file by what reads its kind; SpecError with its problems, each with its line."""
    document = Document(str(path))
    found: NetworkFile | None = None
    try:
        found = read(read_text(path, MOST_FILE_BYTES), document)
    except (OSError, ValueError) as exc:
        document.add(f"cannot read the file: {getattr(exc, 'strerror', None) or exc}", 1)
    if document.problems or found is None:
        more = len(document.problems) - MOST_PROBLEMS
        if more > 0:
            del document.problems[MOST_PROBLEMS:]
            document.add(f"and {more} more problems")
        raise SpecError(document.problems)
    return found
