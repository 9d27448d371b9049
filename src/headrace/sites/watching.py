"""The sites of a pipeline as one: how far each is, what its links have carried, and how that compares with the plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.engine import checkpoints_in, describe_checkpoint
from headrace.errors import HeadraceError, SpecError
from headrace.model import SiteMeasures, SitePlan, newest_measures, plain, restored
from headrace.planning import crossings_of

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

    >>> link = {"link": "r_1", "from": "rome", "to": "hub", "lag_us": 5}
    >>> rome = {"checkpoint": "s/rome", "site": "rome", "links": [link]}
    >>> whole = as_one([rome, {"checkpoint": "s/hub", "site": "hub", "links": [link]}])
    >>> [(name, site["behind_us"]) for name, site in whole["sites"].items()], len(whole["links"])
    ([('rome', 0), ('hub', 5)], 1)
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
    plan = next((site["plan"] for site in reversed(sites.values()) if site.get("plan")), None)
    told = (restored(_Told, {"of": site.get("measured", {})}).of for site in sites.values())
    measured = newest_measures(told)
    crossings = crossings_of(SitePlan() if plan is None else restored(SitePlan, plan), measured)
    return {
        "sites": sites,
        "links": list(links.values()),
        "plan": plan,
        "measured": plain(measured),
        "crossings": plain(crossings),
        "strangers": _strangers(sites),
    }


def _strangers(sites: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Which links one end has and the other knows nothing of, though it has begun: their files differ, or plans do.

    >>> link = {"link": "r_1", "from": "rome", "to": "hub"}
    >>> plan = {"strategy": "edge"}
    >>> _strangers({"rome": {"links": [link], "plan": plan}, "hub": {"links": [], "plan": plan}})
    ['rome sends link r_1 to hub, and hub knows nothing of it: they run other pipelines, or other versions of one']
    """
    known = {name: {link["link"] for link in site["links"]} for name, site in sites.items() if site.get("plan")}
    found = []
    for name, site in sites.items():
        for link in site.get("links", ()):
            other, verb = (link["to"], "sends") if link["from"] == name else (link["from"], "receives")
            if other in known and link["link"] not in known[other]:
                way = f"to {other}" if verb == "sends" else f"from {other}"
                found.append(
                    f"{name} {verb} link {link['link']} {way}, and {other} knows nothing of it: they run other "
                    "pipelines, or other versions of one"
                )
    return found


@dataclass(frozen=True)
class _Told:
    of: Mapping[str, SiteMeasures]
