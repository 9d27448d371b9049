"""What sites have measured and tell each other along links: ids and numbers, and not too many of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headrace.units import SECOND_US

__all__ = ["LinkMeasure", "SiteMeasures", "StreamMeasure", "newest_measures"]

# A name as pipeline files and links have them; whoever reads a file of another site knows of no others.
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
# Of links or streams at a site, and of sites; places of a network file are as many at most.
MOST_NAMES = 1000
# Numbers are counts and microseconds, and fit into 64 bits.
_MOST = 2**63


@dataclass(frozen=True, slots=True)
class StreamMeasure:
    """Rows of a stream that a site where it is born has admitted, and their first and last event time."""

    rows: int
    first_us: int | None = None
    last_us: int | None = None

    def __post_init__(self) -> None:
        _check_counts(self.rows)
        _check_times(self.first_us, self.last_us)

    @property
    def rows_per_s(self) -> float | None:
        """Per second of event time; None before two rows differ in it."""
        return _rate(self.rows, self.first_us, self.last_us)


@dataclass(frozen=True, slots=True)
class LinkMeasure:
    """What a link has carried since it began: bytes of files, and rows, or panes of that name.

    `used` rows of the streams behind it were admitted; a row has `row_bytes` by the types of its columns.
    """

    receiver: str
    stream: str
    bytes: int
    rows: int
    used: int
    row_bytes: float
    first_us: int | None = None
    last_us: int | None = None
    panes: str | None = None

    def __post_init__(self) -> None:
        _check_names((self.receiver, self.stream, *(() if self.panes is None else (self.panes,))))
        _check_counts(self.bytes, self.rows, self.used)
        _check_times(self.first_us, self.last_us)
        if not (math.isfinite(self.row_bytes) and self.row_bytes >= 0):
            raise ValueError(f"a row has 0 bytes or more, not {self.row_bytes}")

    @property
    def bytes_per_s(self) -> float | None:
        """Per second of event time; None before two rows differ in it.

        >>> LinkMeasure("hub", "r", 900, 30, 90, 40.0, 0, 3_000_000).bytes_per_s
        300.0
        """
        return _rate(self.bytes, self.first_us, self.last_us)


@dataclass(frozen=True, slots=True)
class SiteMeasures:
    """What a site had measured when an epoch of its was committed: streams born there, and the links it sends."""

    epoch: int
    streams: Mapping[str, StreamMeasure] = field(default_factory=dict)
    links: Mapping[str, LinkMeasure] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_counts(self.epoch)
        _check_names(self.streams)
        _check_names(self.links)


def newest_measures(told: Iterable[Mapping[str, SiteMeasures]]) -> dict[str, SiteMeasures]:
    """By site the newest of what was told of it, by whoever.

    >>> told = [{"rome": SiteMeasures(5), "oslo": SiteMeasures(1)}, {"rome": SiteMeasures(4)}]
    >>> {site: each.epoch for site, each in newest_measures(told).items()}
    {'oslo': 1, 'rome': 5}
    """
    found: dict[str, SiteMeasures] = {}
    for sites in told:
        for site, measures in sites.items():
            if site not in found or found[site].epoch < measures.epoch:
                found[site] = measures
    return dict(sorted(found.items()))


def check_sites(names: Iterable[str]) -> None:
    """ValueError if sites are too many, or named as none can be."""
    _check_names(names)


def _rate(count: int, first_us: int | None, last_us: int | None) -> float | None:
    if first_us is None or last_us is None or last_us <= first_us:
        return None
    return count * SECOND_US / (last_us - first_us)


def _check_names(names: Iterable[str]) -> None:
    given = tuple(names)
    wrong = next((name for name in given if not _NAME.fullmatch(name)), None)
    if wrong is not None or len(given) > MOST_NAMES:
        raise ValueError(f"{len(given)} names, at most {MOST_NAMES}" if wrong is None else f"{wrong!r:.80} is no name")


def _check_counts(*counts: int) -> None:
    wrong = next((count for count in counts if not 0 <= count < _MOST), None)
    if wrong is not None:
        raise ValueError(f"a count is from 0 to 2**63 - 1, not {wrong}")


def _check_times(*times_us: int | None) -> None:
    wrong = next((us for us in times_us if us is not None and not -_MOST <= us < _MOST), None)
    if wrong is not None:
        raise ValueError(f"a time has 64 bits, not {wrong}")
