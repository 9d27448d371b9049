"""The `sites:`, `network:` and `placement:` of a pipeline file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.language.paths import is_name, read_path
from headrace.language.suggest import nearest
from headrace.language.words import shown
from headrace.language.yaml_nodes import Document, Value
from headrace.model import PlacementSettings, Site, Stream

__all__ = ["read_placement", "read_sites"]

# A day: no link is slower.
MOST_LATENCY_MS = 86_400_000
_SITE_KEYS = {"streams": "the streams that arrive there", "proxy": "whether answers are wanted there"}
_NETWORK_KEYS = {"latency_ms": "milliseconds by pair of sites", "matrix": "a CSV file of round trips"}
_PLACEMENT_KEYS = {"strategy": "how operators are placed", "max_latency": "how old an answer may be"}


def read_sites(section: Value | None, streams: Sequence[Stream]) -> tuple[Site, ...]:
    """Every site; problems are noted in the section's document."""
    if section is None:
        return ()
    sites: list[Site] = []
    owners: dict[str, str] = {}
    names = {stream.name for stream in streams}
    for name, value in section.mapping().items():
        if not is_name(name):
            value.document.add(f"{shown(name)} cannot name a site", value.line, "use letters, digits and _")
            continue
        entries = value.mapping(_SITE_KEYS) if value.content is not None else {}
        found: list[str] = []
        for item in entries["streams"].items() if "streams" in entries else ():
            stream = item.word()
            if stream is None:
                continue
            if stream not in names:
                item.document.add(
                    f"site '{name}': unknown stream '{stream}'", item.line, nearest(stream, sorted(names))
                )
            elif stream in owners:
                item.document.add(
                    f"stream '{stream}' is at sites '{owners[stream]}' and '{name}'",
                    item.line,
                    "a stream arrives at one site",
                )
            else:
                owners[stream] = name
                found.append(stream)
        sites.append(Site(name, tuple(found), entries["proxy"].truth() if "proxy" in entries else False))
    _check_sites(section, sites, names - set(owners))
    return tuple(sites)


def _check_sites(section: Value, sites: Sequence[Site], homeless: set[str]) -> None:
    proxies = [site.name for site in sites if site.proxy]
    if len(proxies) != 1:
        found = ", ".join(proxies) or "none"
        section.document.add(
            f"exactly one site must be the proxy, where answers are wanted; found {found}",
            section.line,
            "write proxy: true at one site",
        )
    for stream in sorted(homeless):
        section.document.add(f"stream '{stream}' arrives at no site", section.line, "list it under one site's streams")


def read_placement(
    entries: Mapping[str, Value], sites: Sequence[Site], base: Path, document: Document
) -> PlacementSettings:
    """How operators are placed and how far sites are apart; problems are noted in the document."""
    latency: tuple[tuple[str, str, float], ...] = ()
    matrix: str | None = None
    if "network" in entries:
        network = entries["network"].mapping(_NETWORK_KEYS)
        if "latency_ms" in network and "matrix" in network:
            entries["network"].document.add(
                "network has both latency_ms and matrix", entries["network"].line, "keep one"
            )
        latency = _read_latency(network.get("latency_ms"), [site.name for site in sites])
        matrix = read_path(network["matrix"], base) if "matrix" in network else None
        if not sites:
            document.add("network without sites", entries["network"].line, "declare the sites it joins, or remove it")
    strategy, span = "optimal", None
    if "placement" in entries:
        placement = entries["placement"].mapping(_PLACEMENT_KEYS)
        strategy = (placement["strategy"].word() if "strategy" in placement else None) or "optimal"
        span = placement["max_latency"].duration_us() if "max_latency" in placement else None
        if span == 0:
            placement["max_latency"].wrong("longer than nothing")
    try:
        return PlacementSettings(strategy, span, latency, matrix)
    except ValueError as exc:
        document.add(str(exc), entries["placement"].mapping()["strategy"].line)
        return PlacementSettings()


def _read_latency(section: Value | None, names: Sequence[str]) -> tuple[tuple[str, str, float], ...]:
    found: dict[frozenset[str], tuple[str, str, float]] = {}
    for pair, value in section.mapping().items() if section is not None else ():
        a, dash, b = pair.partition("-")
        unknown = [name for name in (a, b) if name not in names]
        number = value.number(0, MOST_LATENCY_MS)
        if not dash or a == b:
            value.document.add(f"'{pair}' is not a pair of sites", value.line, "write paris-hub: 12")
        elif unknown:
            value.document.add(f"'{pair}' names no known site '{unknown[0]}'", value.line, nearest(unknown[0], names))
        elif frozenset((a, b)) in found:
            value.document.add(f"'{pair}' stands twice; a pair has one latency", value.line, "keep one")
        elif number is not None:
            found[frozenset((a, b))] = (a, b, number)
    return tuple(found.values())
