"""All queries of a pipeline as one dataflow: nodes that do something with rows, edges along which rows or panes go.

    packets ──rows──▶ synopsis ──panes──▶ answer ──rows──▶ sink

A node is named by its content, what it makes of which rows: never by a query. So queries that want the same share it,
and it is the same after a restart and at another site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from headrace.model.estimate import Estimate

__all__ = ["NODE_KINDS", "Edge", "Graph", "Node", "Traffic"]

NODE_KINDS = ("source", "table", "synopsis", "select", "lookup", "join", "rows", "function", "answer", "sink")
CARRIES = ("rows", "panes")


@dataclass(frozen=True, slots=True)
class Node:
    """What runs: its kind, what it does in words, and the queries it is there for."""

    id: str
    kind: str
    what: str
    owners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in NODE_KINDS:
            raise ValueError(f"unknown kind of node '{self.kind}'; known: {', '.join(NODE_KINDS)}")


@dataclass(frozen=True, slots=True)
class Edge:
    """What one node gives another: rows or panes, which of them, with which columns, cut by which keys.

    `where`, `columns` and `keys` are Spark SQL over what the first node has. `role` tells apart two edges between the
    same nodes, as a stream that is joined with itself has.
    """

    source: str
    target: str
    carries: str = "rows"
    where: str | None = None
    columns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    role: str = ""

    def __post_init__(self) -> None:
        if self.carries not in CARRIES:
            raise ValueError(f"an edge carries {' or '.join(CARRIES)}, not '{self.carries}'")

    @property
    def id(self) -> str:
        return f"{self.source}>{self.target}" + (f":{self.role}" if self.role else "")


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is known of an edge or a node: rows and bytes per second that leave it, and seconds it takes per row."""

    rows_per_s: Estimate | None = None
    bytes_per_s: Estimate | None = None
    seconds_per_row: Estimate | None = None


@dataclass(frozen=True)
class Graph:
    """Nodes and edges without a cycle, and by the id of a node or an edge what was measured of it."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    traffic: Mapping[str, Traffic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ids = [node.id for node in self.nodes]
        if len(set(ids)) != len(ids):
            raise ValueError("two nodes have the same id")
        edges = [edge.id for edge in self.edges]
        if len(set(edges)) != len(edges):
            raise ValueError("two edges have the same id")
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in ids:
                    raise ValueError(f"edge '{edge.id}' has no node '{end}'")
        unknown = self.traffic.keys() - set(ids) - set(edges)
        if unknown:
            raise ValueError(f"something was measured of '{min(unknown)}', which is neither a node nor an edge")
        _ = self.in_order

    @property
    def in_order(self) -> tuple[Node, ...]:
        """All nodes, each after those it reads; ValueError if they read each other."""
        by_id = {node.id: node for node in self.nodes}
        sorter: TopologicalSorter[str] = TopologicalSorter(dict.fromkeys(by_id, ()))
        for edge in self.edges:
            sorter.add(edge.target, edge.source)
        try:
            return tuple(by_id[id_] for id_ in sorter.static_order())
        except CycleError as exc:
            raise ValueError(f"nodes read each other in a circle: {' > '.join(exc.args[1])}") from None

    def node(self, id_: str) -> Node:
        """The node of that id; KeyError if there is none."""
        for node in self.nodes:
            if node.id == id_:
                return node
        raise KeyError(id_)

    def into(self, id_: str) -> tuple[Edge, ...]:
        """The edges that a node reads."""
        return tuple(edge for edge in self.edges if edge.target == id_)

    def out_of(self, id_: str) -> tuple[Edge, ...]:
        """The edges along which a node gives what it makes."""
        return tuple(edge for edge in self.edges if edge.source == id_)

    def owned_by(self, query: str) -> tuple[Node, ...]:
        """The nodes that a query needs."""
        return tuple(node for node in self.nodes if query in node.owners)
