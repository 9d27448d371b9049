"""The `network:` of a pipeline file: how far its sites are apart."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from headrace.errors import Problem, SpecError
from headrace.language.pipeline.network_files import (
    MOST_LATENCY_MS,
    Latencies,
    NetworkFile,
    note_detours,
    shortest_paths,
)
from headrace.language.pipeline.paths import local_path, read_path
from headrace.language.pipeline.round_trips import load_round_trips
from headrace.language.pipeline.sites_section import DeclaredSite
from headrace.language.pipeline.topologies import load_topology
from headrace.language.pipeline.yaml_nodes import Document, Value
from headrace.language.suggest import nearest
from headrace.language.words import shown
from headrace.model import Network, Site

__all__ = ["Surveyed", "read_network"]

_KEYS = {
    "latency_ms": "one-way milliseconds by pair of sites",
    "round_trips": "a CSV matrix of round trips in milliseconds",
    "topology": "a GML file of nodes with coordinates, and links",
}
_FILES: Mapping[str, Callable[[Path], NetworkFile]] = {"round_trips": load_round_trips, "topology": load_topology}


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The sites with their coordinates, the network between them, and notes on how it was read.

    The network has the declared sites and no others. Places of a file that are no sites of the pipeline are ways to
    pass through: paths lead over them, and nothing runs there.
    """

    sites: tuple[Site, ...] = ()
    network: Network | None = None
    notes: tuple[str, ...] = ()


def read_network(
    section: Value | None, declared: Sequence[DeclaredSite], base: Path, owner: Value | None, document: Document
) -> Surveyed:
    """The network between the declared sites; `owner` is their section. Problems are noted in the document."""
    sites = tuple(each.site for each in declared)
    if owner is None and section is not None:
        document.add("network without sites", section.line, "declare the sites it joins, or remove it")
    entries = section.mapping(_KEYS) if section is not None else {}
    ways = [key for key in _KEYS if key in entries]
    for each in declared:
        if each.node is not None and not set(ways) & set(_FILES):
            document.add(
                f"site '{each.site.name}' has a node, and the network has no file that could name one",
                each.line,
                "remove node:, or give the network round_trips: or topology:",
            )
    if section is not None and isinstance(section.content, dict) and len(ways) != 1:
        document.add(
            f"network has {' and '.join(ways) or 'no latencies'}", section.line, f"write one of {', '.join(_KEYS)}"
        )
        return Surveyed(sites)
    if section is None or not ways:
        if len(sites) > 1 and section is None and owner is not None:
            names = ", ".join(site.name for site in sites[:3])
            hint = f"write network: {{latency_ms: {{{sites[0].name}-{sites[1].name}: 12}}}}, or give it a file"
            document.add(f"no latencies between the sites ({names}{', ...' if sites[3:] else ''})", owner.line, hint)
        return Surveyed(sites, _network(sites, np.zeros((1, 1))) if len(sites) == 1 else None)
    if ways == ["latency_ms"]:
        return _from_pairs(entries["latency_ms"], declared, document)
    return _from_file(entries[ways[0]], _FILES[ways[0]], declared, base, document)


def _network(sites: Sequence[Site], latency_ms: Latencies) -> Network:
    return Network(tuple(site.name for site in sites), tuple(tuple(map(float, row)) for row in latency_ms))


def _from_pairs(section: Value, declared: Sequence[DeclaredSite], document: Document) -> Surveyed:
    sites = tuple(each.site for each in declared)
    direct = _read_pairs(section, [site.name for site in sites])
    if direct is None:
        return Surveyed(sites)
    found = shortest_paths(direct)
    if _note_unreached(declared, found, section.path, document):
        return Surveyed(sites)
    detours = note_detours(direct, found)
    notes = () if detours is None else (str(Problem(f"network: {detours}", document.file, section.line)),)
    return Surveyed(sites, _network(sites, found), notes)


def _read_pairs(section: Value, names: Sequence[str]) -> Latencies | None:
    """The latencies that pairs of sites say; None after noting a problem, so that no second one follows from it."""
    position = {name: i for i, name in enumerate(names)}
    direct = np.full((len(names), len(names)), math.inf)
    known = len(section.document.problems)
    for pair, value in section.mapping().items():
        a, dash, b = pair.partition("-")
        unknown = [name for name in (a, b) if name not in position]
        number = value.number(0, MOST_LATENCY_MS)
        if not dash or a == b:
            value.document.add(f"{shown(pair)} is not a pair of sites", value.line, "write paris-hub: 12")
        elif unknown:
            value.document.add(
                f"{shown(pair)} names no known site {shown(unknown[0])}", value.line, nearest(unknown[0], names)
            )
        elif math.isfinite(direct[position[a], position[b]]):
            value.document.add(f"{shown(pair)} stands twice; a pair has one latency", value.line, "keep one")
        elif number is not None:
            direct[position[a], position[b]] = direct[position[b], position[a]] = number
    return direct if len(section.document.problems) == known else None


def _from_file(
    value: Value,
    load: Callable[[Path], NetworkFile],
    declared: Sequence[DeclaredSite],
    base: Path,
    document: Document,
) -> Surveyed:
    sites = tuple(each.site for each in declared)
    path = read_path(value, base)
    place = None if path is None else local_path(path)
    if path is not None and place is None:
        document.add(f"{value.path}: {shown(path)} is on another machine", value.line, "copy it beside this file")
    if place is None:
        return Surveyed(sites)
    try:
        file = load(place)
    except SpecError as error:
        document.problems += error.problems
        return Surveyed(sites)
    nodes = _find_nodes(declared, file, place.name, document)
    if len(nodes) < len(sites):
        return Surveyed(sites)
    rows = [file.names.index(nodes[site.name]) for site in sites]
    found = file.latency_ms[np.ix_(rows, rows)]
    if _note_unreached(declared, found, f"the links of {place.name}", document, "join them, or leave the site out"):
        return Surveyed(sites)
    drawn = tuple(replace(site, at=site.at or file.at.get(nodes[site.name])) for site in sites)
    notes = tuple(str(Problem(note, str(place))) for note in file.notes)
    return Surveyed(drawn, _network(sites, found), notes)


def _find_nodes(declared: Sequence[DeclaredSite], file: NetworkFile, name: str, document: Document) -> dict[str, str]:
    """The place of the file that each site is: the one it names as its node, else the one of its own name.

    A site cannot be called 'eu-west-1' or 'Kansas City'; case, blanks and punctuation do not count, so that eu_west_1
    and kansas_city are found.
    """
    loosely: dict[str, list[str]] = {}
    for place in file.names:
        loosely.setdefault(_loose(place), []).append(place)
    found: dict[str, str] = {}
    for each in declared:
        wanted = each.site.name if each.node is None else each.node
        fitting = [wanted] if wanted in file.names else loosely.get(_loose(wanted), [])
        if len(fitting) != 1:
            what = f"site '{each.site.name}'" + ("" if each.node is None else f" is node {shown(each.node)}, which")
            hint = nearest(wanted, fitting or file.names)
            how = "could be several places of" if fitting else "is not in"
            document.add(f"{what} {how} {name}", each.line, f"{hint}; node: says which place it is")
        elif fitting[0] in found.values():
            other = next(site for site, place in found.items() if place == fitting[0])
            document.add(
                f"sites '{other}' and '{each.site.name}' are both {shown(fitting[0])} of {name}", each.line, "keep one"
            )
        else:
            found[each.site.name] = fitting[0]
    return found


def _loose(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower() or name


def _note_unreached(
    declared: Sequence[DeclaredSite], latency_ms: Latencies, over: str, document: Document, hint: str | None = None
) -> bool:
    """Notes every site without a path to the proxy; whether there are any."""
    hub = next((i for i, each in enumerate(declared) if each.site.proxy), 0)
    lost = [each for each, ms in zip(declared, latency_ms[hub], strict=True) if math.isinf(ms)] if declared else []
    for each in lost:
        name, proxy = each.site.name, declared[hub].site.name
        remedy = hint or f"add {name}-{proxy}: and its milliseconds"
        document.add(f"site '{name}' cannot be reached from '{proxy}' over {over}", each.line, remedy)
    return bool(lost)
