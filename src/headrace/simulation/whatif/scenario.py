"""What is asked of a simulated pipeline: rates, hosts and their speeds, how long, and where chance begins."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.errors import SpecError

__all__ = ["MOST_HOSTS", "Rate", "Scenario", "rate_of", "slow_hosts"]

# More task slots than any cluster of one pipeline has.
MOST_HOSTS = 4096
MOST_MINUTES = 7 * 24 * 60.0


@dataclass(frozen=True, slots=True)
class Rate:
    """So many times what streams bring, or so many rows per second of all streams together."""

    times: float = 1.0
    rows_per_s: float | None = None

    def of(self, rates: Mapping[str, float]) -> dict[str, float]:
        """The rates of streams that bring these now.

        >>> Rate(2.0).of({"a": 10.0}), Rate(rows_per_s=90.0).of({"a": 10.0, "b": 20.0})
        ({'a': 20.0}, {'a': 30.0, 'b': 60.0})
        """
        total = sum(rates.values())
        times = self.times if self.rows_per_s is None else self.rows_per_s / total if total else 0.0
        return {stream: times * rate for stream, rate in rates.items()}


@dataclass(frozen=True)
class Scenario:
    """Hosts are tasks that run at a time; None is as many as the checkpoint's run had. `slow` has speeds below 1, or
    above it, of some of them."""

    rate: Rate = field(default_factory=Rate)
    hosts: int | None = None
    slow: Mapping[int, float] = field(default_factory=dict)
    minutes: float = 10.0
    seed: int = 1

    def __post_init__(self) -> None:
        if self.hosts is not None and not 1 <= self.hosts <= MOST_HOSTS:
            raise SpecError(f"--hosts {self.hosts}: a pipeline has 1 to {MOST_HOSTS} hosts")
        if not (math.isfinite(self.minutes) and 0 < self.minutes <= MOST_MINUTES):
            raise SpecError(f"--minutes {self.minutes:g}: simulate more than 0 minutes and at most a week (10080)")

    def speeds(self, hosts: int) -> tuple[float, ...]:
        """The speed of each host, 1 being that of the run whose costs are known; SpecError names a host too many."""
        for host in self.slow:
            if host >= hosts:
                raise SpecError(f"--slow host{host}: there are {hosts} hosts, host0 to host{hosts - 1}")
        return tuple(self.slow.get(host, 1.0) for host in range(hosts))


def rate_of(text: str | None) -> Rate:
    """What `--rate` says.

    >>> rate_of("5x"), rate_of("50000"), rate_of(None)
    (Rate(times=5.0, rows_per_s=None), Rate(times=1.0, rows_per_s=50000.0), Rate(times=1.0, rows_per_s=None))
    """
    if text is None:
        return Rate()
    number = _positive(text.strip().lower().removesuffix("x").replace(",", "").replace("_", ""))
    if number is None:
        raise SpecError(f"--rate {text}: write so many times the rate, such as 5x, or rows per second, such as 50000")
    return Rate(number) if text.strip().lower().endswith("x") else Rate(rows_per_s=number)


def slow_hosts(items: Sequence[str]) -> dict[int, float]:
    """What `--slow` says, by the number of the host.

    >>> slow_hosts(["host3=0.4"])
    {3: 0.4}
    """
    found: dict[int, float] = {}
    for item in items:
        match = re.fullmatch(r"\s*host([0-9]{1,4})\s*=(.*)", item)
        speed = None if match is None else _positive(match.group(2).strip())
        if match is None or speed is None:
            raise SpecError(f"--slow {item}: write a host and its speed, such as host3=0.4; hosts count from host0")
        found[int(match.group(1))] = speed
    return found


def _positive(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
