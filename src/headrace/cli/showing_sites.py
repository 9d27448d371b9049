"""How the sites of a pipeline look as one: a line per site, then links, and what crosses beside what was planned."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.cli.showing import PLAIN_WIDTH, crossing_lines, engine_line, link_lines, when
from headrace.units import format_bytes, format_duration

__all__ = ["show_sites"]


def show_sites(status: dict[str, Any]) -> None:
    """Prints the status of several checkpoints."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    console.print(_sites(status["sites"]))
    for line in (*_problems(status["sites"]), *status["strangers"], *link_lines(status), *crossing_lines(status)):
        console.print(line, markup=False, highlight=False)


def _sites(sites: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="sites", title_justify="left", expand=False)
    for name in ("site", "epoch", "rows in", "event time", "behind", "queries", "state", "engine"):
        table.add_column(name, justify="right" if name in ("epoch", "rows in", "behind", "state") else "left")
    for name, site in sites.items():
        if "problem" in site:
            table.add_row(name, *["-"] * 6, "cannot be read")
        elif site["epoch"] < 0:
            table.add_row(name, "none", *["-"] * 5, engine_line(site["engine"]))
        else:
            table.add_row(
                name,
                str(site["epoch"]),
                f"{sum(stream['rows_in'] for stream in site['streams'].values()):,}",
                when(max((s["last_us"] for s in site["streams"].values() if s["last_us"] is not None), default=None)),
                format_duration(site["behind_us"]) if site["behind_us"] else "-",
                _queries(site),
                format_bytes(site["state"]["bytes"]),
                engine_line(site["engine"]),
            )
    return table


def _queries(site: dict[str, Any]) -> str:
    """The queries of the file that a site runs; those that only send are told of with their links."""
    sends = {link["query"] for link in site["links"] if link["from"] == site["site"] and link["stream"] != link["link"]}
    names = [name for name in site["queries"] if name not in sends]
    return ", ".join(names) if len(names) <= 8 else f"{len(names)}"


def _problems(sites: dict[str, dict[str, Any]]) -> list[str]:
    found = [f"{name}: {site['problem']}" for name, site in sites.items() if "problem" in site]
    for name, site in sites.items():
        states = site.get("queries", {}).items()
        found += [f"{name}: query {query} failed: {each['cause']}" for query, each in states if each["cause"]]
    return found
