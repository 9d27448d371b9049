"""A placement for people to read: as a table of its flows, and as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.policies.placement import Flow, Placement, Problem
from headrace.units import format_bytes

__all__ = ["draw_mermaid", "escaped", "flow_table", "format_ms"]


def format_ms(ms: float) -> str:
    """Milliseconds with three significant digits.

    >>> format_ms(12), format_ms(0.1234), format_ms(1234.5)
    ('12 ms', '0.123 ms', '1234 ms')
    """
    return f"{ms:.0f} ms" if ms >= 1000 else f"{ms:.3g} ms"


def flow_table(problem: Problem, placement: Placement, crossing: bool = False) -> str:
    """Each flow with the sites of its ends, its bytes per second and the milliseconds it takes, and their sums.

    With `crossing`, flows that stay at one site are left out.

    A flow between parts at one site takes no time and costs nothing: its bytes stand there, its milliseconds do not.
    Bytes in brackets go along with a wider flow of the same part to the same site, which has them all.
    """
    heads = ("flow", "from", "to", "bytes/s", "ms")
    rows = [heads]
    for flow, alone in _in_order(problem, placement):
        start, end = placement.sites[flow.source], placement.sites[flow.target]
        if crossing and start == end:
            continue
        rate = f"{format_bytes(flow.bytes_per_s)}/s"
        ms = "-" if start == end else format_ms(problem.network.distance_ms(start, end)).removesuffix(" ms")
        rows.append((f"{flow.source} -> {flow.target}", start, end, rate if alone else f"({rate})", ms))
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    lines = [
        "  ".join(cell.rjust(width) if i > 2 else cell.ljust(width) for i, (cell, width) in enumerate(zip(row, widths,
                                                                                                        strict=True)))
        for row in rows
    ]  # fmt: skip
    return "\n".join([*(line.rstrip() for line in lines), _sum(problem, placement)])


def _sum(problem: Problem, placement: Placement) -> str:
    links = problem.links_of(placement.sites)
    pairs = f"{len(links)} pair{'' if len(links) == 1 else 's'} of sites"
    on = f"{format_bytes(sum(links.values()))}/s between {pairs}"
    cost = f"cost {placement.cost:.6g} (bytes/s x ms)"
    return f"{on}; {cost}; longest path {format_ms(placement.latency_ms)}; {placement.reason}"


def _in_order(problem: Problem, placement: Placement) -> list[tuple[Flow, bool]]:
    """Flows in the order of what sends them, and whether each crosses the network by itself."""
    order = {name: i for i, name in enumerate(problem.in_order)}
    widest: dict[tuple[str, str], Flow] = {}
    for flow in problem.flows:
        link = (flow.source, placement.sites[flow.target])
        if link not in widest or flow.bytes_per_s > widest[link].bytes_per_s:
            widest[link] = flow
    flows = sorted(problem.flows, key=lambda flow: (order[flow.source], order[flow.target]))
    return [
        (
            flow,
            placement.sites[flow.source] == placement.sites[flow.target]
            or widest[flow.source, placement.sites[flow.target]] is flow,
        )
        for flow in flows
    ]


def draw_mermaid(problem: Problem, placement: Placement) -> str:
    """A flowchart with a box per site that has something; flows that cross the network are thick and say their bytes.

    Streams have round ends, answers a double frame.
    """
    ids = {part.name: f"p{i}" for i, part in enumerate(problem.parts)}
    fed = {flow.target for flow in problem.flows}
    read = {flow.source for flow in problem.flows}
    lines = ["flowchart LR"]
    for i, site in enumerate(problem.network.sites):
        inside = [part.name for part in problem.parts if placement.sites[part.name] == site]
        if not inside:
            continue
        lines.append(f'  subgraph s{i}["{escaped(site)}"]')
        for name in inside:
            left, right = ("([", "])") if name not in fed else ("[[", "]]") if name not in read else ("[", "]")
            lines.append(f'    {ids[name]}{left}"{escaped(name)}"{right}')
        lines.append("  end")
    for flow, alone in _in_order(problem, placement):
        start, end = placement.sites[flow.source], placement.sites[flow.target]
        ends = ids[flow.source], ids[flow.target]
        if start == end:
            lines.append(f"  {ends[0]} --> {ends[1]}")
        else:
            rate = f"{format_bytes(flow.bytes_per_s)}/s" if alone else "along"
            label = f"{rate}, {format_ms(problem.network.distance_ms(start, end))}"
            lines.append(f'  {ends[0]} == "{label}" ==> {ends[1]}')
    return "\n".join(lines)


# What Mermaid reads as something else within quotes; its own escapes are #name; and #number;.
_ENTITIES: Sequence[tuple[str, str]] = (("#", "#35;"), ("&", "#amp;"), ('"', "#quot;"), ("<", "#lt;"), (">", "#gt;"),
                                        ("`", "#96;"))  # fmt: skip


def escaped(text: str) -> str:
    """A label that Mermaid shows as it is written.

    >>> escaped('a "b" <c>#1')
    'a #quot;b#quot; #lt;c#gt;#35;1'
    """
    shown = "".join(c if c.isprintable() else " " for c in text)
    table = str.maketrans(dict(_ENTITIES))
    return shown.translate(table)
