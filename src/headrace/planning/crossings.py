"""What crosses between sites, measured beside planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.model import SiteMeasures, SitePlan

__all__ = ["Crossed", "crossings_of"]


@dataclass(frozen=True, slots=True)
class Crossed:
    """From one site to another: bytes of files since links began, bytes per second of event time, and the plan's.

    The milliseconds between the two are None where the plan has nothing go.
    """

    sender: str
    receiver: str
    bytes: int
    bytes_per_s: float | None
    planned_bytes_per_s: float
    distance_ms: float | None


def crossings_of(plan: SitePlan, measured: Mapping[str, SiteMeasures]) -> tuple[Crossed, ...]:
    """By sending and receiving site what links between them carry; what a site sends to itself crosses nothing.

    >>> from headrace.model import Crossing, LinkMeasure
    >>> plan = SitePlan("optimal", crossings=(Crossing("rome", "hub", 400.0, 25.0),))
    >>> link = LinkMeasure("hub", "r", 900, 30, 90, 40.0, 0, 3_000_000)
    >>> crossings_of(plan, {"rome": SiteMeasures(7, links={"r_1": link})})[0]
    Crossed(sender='rome', receiver='hub', bytes=900, bytes_per_s=300.0, planned_bytes_per_s=400.0, distance_ms=25.0)
    """
    planned = {(each.sender, each.receiver): each for each in plan.crossings}
    carried: dict[tuple[str, str], int] = {}
    rates: dict[tuple[str, str], float] = {}
    for site, measures in measured.items():
        for link in measures.links.values():
            ends = site, link.receiver
            if site != link.receiver:
                carried[ends] = carried.get(ends, 0) + link.bytes
                if link.bytes_per_s is not None:
                    rates[ends] = rates.get(ends, 0.0) + link.bytes_per_s
    return tuple(
        Crossed(
            *ends, carried.get(ends, 0), rates.get(ends), planned[ends].bytes_per_s if ends in planned else 0.0,
            planned[ends].distance_ms if ends in planned else None,
        )
        for ends in sorted({*carried, *planned})
    )  # fmt: skip
