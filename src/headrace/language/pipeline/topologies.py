"""A GML topology, as the Topology Zoo has them: nodes with Latitude and Longitude, and the links between them.

A link takes the milliseconds it says (`latency_ms`, `latency`, `delay` or `weight`, one way), else those of light in a
straight fibre between the coordinates of its ends. A node without coordinates is taken to be in the middle of its
neighbours: in the Topology Zoo most of these are links of more than two ends, drawn as a node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.language.pipeline.gml import GmlError, Item, parse_gml
from headrace.language.pipeline.network_files import (
    MOST_LATENCY_MS,
    MOST_PLACES,
    NetworkFile,
    great_circle_ms,
    load_network_file,
    note_detours,
    shortest_paths,
)
from headrace.language.pipeline.yaml_nodes import Document

__all__ = ["load_topology", "read_topology"]

_LATENCY = ("latency_ms", "latency", "delay", "weight")
# Of a label: it stands in tables and on maps.
_MOST_CHARACTERS = 200

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Node:
    label: str
    at: Place | None


@dataclass(frozen=True, slots=True)
class _Link:
    ends: tuple[int, int]
    latency_ms: float | None


def load_topology(path: Path) -> NetworkFile:
    """The places of a GML file by label, those with the same label as label#id; SpecError with its problems."""
    return load_network_file(path, read_topology)


def read_topology(text: str, document: Document) -> NetworkFile | None:
    """The places of a GML text; None after noting what is wrong with it."""
    try:
        graph = parse_gml(text).first("graph")
    except GmlError as exc:
        document.add(str(exc), exc.line)
        return None
    if graph is None or not graph.every("node"):
        document.add("there is no graph with nodes in the file", 1, "write graph [ node [ id 0 ... ] edge [ ... ] ]")
        return None
    if len(graph.every("node")) > MOST_PLACES:
        document.add(f"the graph has {len(graph.every('node'))} nodes; the most is {MOST_PLACES}", graph.line)
        return None
    nodes = _read_nodes(graph, document)
    links = _read_links(graph, nodes, document)
    if document.problems:
        return None
    at = _positions(nodes, links)
    known = sum(node.at is not None for node in nodes.values())
    timed = [(link.ends, _latency(link, at)) for link in links]
    if links and all(ms is None for _, ms in timed):
        document.add(
            "no link has a length: no node has coordinates, and no link says its latency",
            graph.line,
            "give nodes Latitude and Longitude, or links latency_ms",
        )
        return None
    notes = []
    if 0 < known < len(nodes):
        notes.append(f"{len(nodes) - known} of {len(nodes)} nodes have no coordinates; where they have neighbours that "
                     "do, they are taken to be in their middle")  # fmt: skip
    lost = sum(ms is None for _, ms in timed)
    if lost:
        notes.append(f"{lost} of {len(links)} links have neither coordinates at both ends nor a latency; they are left "
                     "out")  # fmt: skip
    return _network_file(nodes, [(ends, ms) for ends, ms in timed if ms is not None], at, notes)


def _network_file(
    nodes: Mapping[int, _Node], links: list[tuple[tuple[int, int], float]], at: Mapping[int, Place], notes: list[str]
) -> NetworkFile:
    position = {id_: i for i, id_ in enumerate(nodes)}
    direct = np.full((len(nodes), len(nodes)), math.inf)
    np.fill_diagonal(direct, 0.0)
    for (a, b), ms in links:
        i, j = position[a], position[b]
        # Of several links between two nodes the fastest counts.
        direct[i, j] = direct[j, i] = min(ms, direct[i, j])
    found = shortest_paths(direct)
    names = _names(nodes)
    detours = note_detours(direct, found)
    places = {names[position[id_]]: place for id_, place in at.items()}
    return NetworkFile(tuple(names), found, places, (*notes, *([] if detours is None else [detours])))


def _read_nodes(graph: Item, document: Document) -> dict[int, _Node]:
    nodes: dict[int, _Node] = {}
    for item in graph.every("node"):
        id_ = item.first("id")
        number = None if id_ is None else id_.value
        if not isinstance(number, float) or not number.is_integer():
            document.add("a node has no id", item.line, "write id and a whole number")
            continue
        if int(number) in nodes:
            document.add(f"two nodes have id {int(number)}", item.line, "every node has an id of its own")
            continue
        label = item.first("label")
        text = f"{int(number)}" if label is None or isinstance(label.value, tuple) else str(label.value).strip()
        text = "".join(c for c in text if c.isprintable())[:_MOST_CHARACTERS] or f"{int(number)}"
        nodes[int(number)] = _Node(text, _read_place(item, document))
    return nodes


def _read_place(node: Item, document: Document) -> Place | None:
    found: list[float] = []
    for key, most in (("Latitude", 90.0), ("Longitude", 180.0)):
        item = node.first(key)
        if item is None:
            continue
        if not isinstance(item.value, float) or abs(item.value) > most:
            value = item.value if isinstance(item.value, float) else "no number"
            document.add(f"{key} is {value}; it is from -{most:g} to {most:g} degrees", item.line)
            return None
        found.append(item.value)
    if len(found) == 1:
        document.add("a node has one coordinate", node.line, "it has both Latitude and Longitude, or none")
    return (found[0], found[1]) if len(found) == 2 else None


def _read_links(graph: Item, nodes: Mapping[int, _Node], document: Document) -> list[_Link]:
    links: list[_Link] = []
    for item in graph.every("edge"):
        ends: list[int] = []
        for key in ("source", "target"):
            end = item.first(key)
            if end is None or not isinstance(end.value, float):
                document.add(f"a link has no {key}", item.line, "write the id of a node")
            elif int(end.value) not in nodes:
                document.add(f"a link names no known node {end.value:g}", end.line, "write the id of a node")
            else:
                ends.append(int(end.value))
        told = item.first(*_LATENCY)
        ms = None if told is None else told.value
        if told is not None and not (isinstance(ms, float) and 0 <= ms <= MOST_LATENCY_MS):
            shown_value = f"{ms:g}" if isinstance(ms, float) else "no number"
            document.add(f"the {told.key} of a link is {shown_value}; it is 0 or more milliseconds", told.line)
        elif len(ends) == 2 and ends[0] != ends[1]:
            links.append(_Link((ends[0], ends[1]), ms if isinstance(ms, float) else None))
    return links


def _positions(nodes: Mapping[int, _Node], links: list[_Link]) -> dict[int, Place]:
    """Where every node is, as far as that can be told: round by round, neighbours of those that are known."""
    at = {id_: node.at for id_, node in nodes.items() if node.at is not None}
    beside: dict[int, set[int]] = {id_: set() for id_ in nodes}
    for link in links:
        a, b = link.ends
        beside[a].add(b)
        beside[b].add(a)
    while True:
        found = {
            id_: _middle([at[other] for other in sorted(beside[id_]) if other in at])
            for id_ in nodes
            if id_ not in at and any(other in at for other in beside[id_])
        }
        if not found:
            return at
        at |= found


def _middle(places: list[Place]) -> Place:
    """The mean direction from the centre of the earth: right across the date line, too."""
    x = y = z = 0.0
    for lat, lon in ((math.radians(a), math.radians(b)) for a, b in places):
        x, y, z = x + math.cos(lat) * math.cos(lon), y + math.cos(lat) * math.sin(lon), z + math.sin(lat)
    return math.degrees(math.atan2(z, math.hypot(x, y))), math.degrees(math.atan2(y, x))


def _latency(link: _Link, at: Mapping[int, Place]) -> float | None:
    a, b = link.ends
    if link.latency_ms is not None:
        return link.latency_ms
    return great_circle_ms(at[a], at[b]) if a in at and b in at else None


def _names(nodes: Mapping[int, _Node]) -> list[str]:
    """Labels; nodes whose label others have, too, say their id behind it."""
    labels = [node.label for node in nodes.values()]
    taken = {label for label in labels if labels.count(label) > 1}
    return [f"{node.label}#{id_}" if node.label in taken else node.label for id_, node in nodes.items()]
