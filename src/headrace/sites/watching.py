"""The sites of a pipeline as one: how far each is, what its links have carried, and how that compares with the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.engine import checkpoints_in, describe_checkpoint
from headrace.errors import HeadraceError, SpecError

__all__ = ["as_one", "describe_sites"]


def describe_sites(roots: Sequence[str]) -> dict[str, Any]:
    """The status of a checkpoint, or of several as one; a root may hold the checkpoints of sites. SpecError if none do.

    Of several, one that cannot be read is told of beside the others.
    """
    found: dict[str, None] = {}
    for root in roots:
        there = checkpoints_in(root)
        if not there:
            raise SpecError(
                f"{root} is not a checkpoint, and no folder in it is one; give the folder named by 'checkpoint' in the "
                "pipeline file"
            )
        found |= dict.fromkeys(there)
    if len(found) == 1:
        return describe_checkpoint(next(iter(found)))
    return as_one(_status(root) for root in found)


def _status(root: str) -> dict[str, Any]:
    try:
        return describe_checkpoint(root)
    except HeadraceError as problem:
        return {"checkpoint": root, "problem": str(problem)}


def as_one(statuses: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """`sites` by name, each with the event time it is behind those that send to it, all links, and what crosses.

    >>> link = {"link": "r_1", "from": "rome", "to": "hub", "lag_us": 5, "sent_bytes": 90, "bytes_per_s": 30.0}
    >>> plan = {"crossings": [{"sender": "rome", "receiver": "hub", "bytes_per_s": 40.0, "distance_ms": 25.0}]}
    >>> rome = {"checkpoint": "s/rome", "site": "rome", "links": [link]}
    >>> whole = as_one([rome, {"checkpoint": "s/hub", "site": "hub", "links": [link], "plan": plan}])
    >>> [(name, site["behind_us"]) for name, site in whole["sites"].items()], len(whole["links"])
    ([('rome', 0), ('hub', 5)], 1)
    >>> whole["crossings"]
    [{'from': 'rome', 'to': 'hub', 'distance_ms': 25.0, 'sent_bytes': 90, 'bytes_per_s': 30.0, \
'planned_bytes_per_s': 40.0}]
    """
    sites: dict[str, dict[str, Any]] = {}
    links: dict[str, dict[str, Any]] = {}
    for status in statuses:
        name = status.get("site") or str(status["checkpoint"]).rstrip("/").rpartition("/")[2]
        name = name if name not in sites else str(status["checkpoint"])
        mine = status.get("links", ())
        links |= {link["link"]: link for link in mine}
        behind = max((link["lag_us"] or 0 for link in mine if link["to"] == name), default=0)
        sites[name] = {**status, "behind_us": behind}
    plans = [site["plan"] for site in sites.values() if site.get("plan")]
    plan = plans[-1] if plans else None
    return {"sites": sites, "links": list(links.values()), "plan": plan, "crossings": _crossings(links.values(), plan)}


def _crossings(links: Iterable[Mapping[str, Any]], plan: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """By sending and receiving site what links between them have carried, beside what was planned."""
    planned = {(each["sender"], each["receiver"]): each for each in (plan or {}).get("crossings", ())}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for link in links:
        ends = link["from"], link["to"]
        if ends[0] != ends[1]:
            each = found.setdefault(ends, {"sent_bytes": 0, "bytes_per_s": None})
            each["sent_bytes"] += link["sent_bytes"]
            if link["bytes_per_s"] is not None:
                each["bytes_per_s"] = (each["bytes_per_s"] or 0.0) + link["bytes_per_s"]
    nothing = {"sent_bytes": 0, "bytes_per_s": None}
    return [
        {
            "from": ends[0],
            "to": ends[1],
            "distance_ms": planned[ends]["distance_ms"] if ends in planned else None,
            **found.get(ends, nothing),
            "planned_bytes_per_s": planned[ends]["bytes_per_s"] if ends in planned else 0.0,
        }
        for ends in sorted({*found, *planned})
    ]
