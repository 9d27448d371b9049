"""The graph of a pipeline for programs and for eyes: plain values, and a Mermaid flowchart."""

from __future__ import annotations

from typing import Any

from headrace.model import Graph, Node
from headrace.planning.drawing import escaped

__all__ = ["draw_graph", "graph_json"]

# How Mermaid draws each kind of node.
_SHAPES = {
    "source": ("([", "])"),
    "table": ("[(", ")]"),
    "synopsis": ("[(", ")]"),
    "select": ("[", "]"),
    "lookup": ("[", "]"),
    "join": ("{{", "}}"),
    "rows": ("[", "]"),
    "function": ("[/", "/]"),
    "answer": ("[", "]"),
    "sink": ("[[", "]]"),
}


def graph_json(graph: Graph) -> dict[str, Any]:
    """Nodes with their owners and edges with what they carry, as plain values."""
    return {
        "nodes": [{"id": n.id, "kind": n.kind, "what": n.what, "owners": list(n.owners)} for n in graph.nodes],
        "edges": [
            {
                "from": e.source,
                "to": e.target,
                "role": e.role,
                "carries": e.carries,
                "where": e.where,
                "columns": list(e.columns),
                "keys": list(e.keys),
            }
            for e in graph.edges
        ],
    }


def draw_graph(graph: Graph) -> str:
    """A flowchart from streams to sinks; panes go along dotted lines, filters stand on the lines of rows."""
    ids = {node.id: f"n{i}" for i, node in enumerate(graph.nodes)}
    lines = ["flowchart LR"]
    for node in graph.nodes:
        left, right = _SHAPES[node.kind]
        lines.append(f'  {ids[node.id]}{left}"{escaped(_label(node))}"{right}')
    for edge in graph.edges:
        arrow = "-.->" if edge.carries == "panes" else "-->"
        label = f'|"{escaped(edge.where)}"|' if edge.where else ""
        lines.append(f"  {ids[edge.source]} {arrow}{label} {ids[edge.target]}")
    return "\n".join(lines)


def _label(node: Node) -> str:
    if node.kind in ("source", "synopsis", "join"):
        return node.what
    return f"{', '.join(node.owners)}: {node.what}"
