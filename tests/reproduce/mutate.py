"""Breaks one rule of a policy at a time and looks whether a claim of the papers notices; run by hand, it takes minutes:

pytest tests/reproduce/mutate.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import headrace.policies.joins.diffusion as diffusion
import headrace.policies.joins.hosts as hosts
import headrace.policies.keyed.decide as decide
import headrace.policies.keyed.flux as flux
import headrace.policies.keyed.rounds as rounds
import headrace.reproduce.ssp as ssp
import headrace.simulation.join_cluster as join_cluster
from headrace.model import Residence
from headrace.reproduce import PAPERS, Settings

Patch = Callable[[pytest.MonkeyPatch], None]


def put(module: object, name: str, made: Callable[[Callable[..., object]], object]) -> Patch:
    """Replaces a name of a module by what is made of it."""
    return lambda patch: patch.setattr(module, name, made(getattr(module, name)))


def limits(**changes: float) -> Patch:
    def refused(old: Callable[..., object]) -> object:
        return lambda donor, receiver, mean, limits: old(donor, receiver, mean, replace(limits, **changes))

    return put(flux, "_refusal", refused)


def neighbours(old: object) -> object:
    return lambda ordered: ((ordered[i], ordered[i + 1]) for i in range(0, len(ordered) - 1, 2))


def three_ahead(old: Callable[..., object]) -> object:
    return lambda loads, state, settings, merges: old(loads, state, replace(settings, ahead=3), merges)


def slower(old: Callable[..., diffusion.Load]) -> object:
    other = {"left": "right", "right": "left", None: None}
    return lambda way, split, stats, hot=(): old(way, other[split], stats, hot)


def in_turns(old: object) -> object:
    return lambda slices, speeds, before=None, queued=(): tuple(n % len(speeds) for n in range(slices))


def no_turns(old: Callable[..., Residence]) -> object:
    return lambda minis, room, before: replace(old(minis, room, before), turn=())


CASES = [
    pytest.param(limits(imbalance=3.0), "flux", "6", id="th_imb 3 instead of 1.2"),
    pytest.param(limits(utilisation=0.3), "flux", "6", id="th_util 0.3 instead of 0.9"),
    pytest.param(put(flux, "_pairs", neighbours), "flux", "6", id="neighbours are paired instead of ends"),
    pytest.param(put(decide, "_round", three_ahead), "flux", "6", id="three rounds are planned ahead"),
    pytest.param(
        put(rounds, "next_collection_s", lambda old: lambda collected, moves, least: least),
        "flux", "6", id="collections are always the shortest",
        marks=pytest.mark.xfail(reason="moves of 800 KB are short: no claim of Figure 6 tells the difference"),
    ),
    pytest.param(
        put(rounds, "next_collection_s", lambda old: lambda collected, moves, least: 0.5),
        "flux", "6", id="collections are always 0.5 s",
    ),
    pytest.param(
        put(rounds, "utilisation", lambda old: lambda idle, collected: 1 - old(idle, collected)),
        "flux", "6", id="utilisation is the share of idle time",
    ),
    pytest.param(
        put(flux, "_evens_out", lambda old: lambda mini, donor, receiver: not old(mini, donor, receiver)),
        "flux", "6", id="moves that do not lower the imbalance",
    ),
    pytest.param(put(decide, "hybrid", lambda old: flux.load), "flux", "10", id="always the load policy"),
    pytest.param(put(decide, "reside", no_turns), "flux", "10", id="what is on disk has no turns"),
    pytest.param(
        put(decide, "_room", lambda old: lambda state: tuple(2 * room for room in old(state))),
        "flux", "10", id="state may take twice the memory",
    ),
    pytest.param(lambda patch: patch.setattr(decide, "COOLS", 0.0), "flux", "10", id="warmth is forgotten at once"),
    pytest.param(put(diffusion, "load_of", slower), "ssp", "7", id="the slower stream is split"),
    pytest.param(lambda patch: patch.setattr(diffusion, "GAIN", 9.0), "ssp", "7", id="roles never change"),
    pytest.param(put(join_cluster, "spread_slices", in_turns), "ssp", "6", id="rows in turns instead of least loaded"),
    pytest.param(lambda patch: patch.setattr(diffusion, "LEARNS", 0.0), "ssp", "6", id="speeds are not learned"),
    pytest.param(
        put(ssp, "choose_hosts", lambda old: lambda joins, speeds: old([hosts.JoinDemand(1, 0)] * len(joins), speeds)),
        "ssp", "1000", id="hosts are chosen without regard to the work",
    ),
    pytest.param(
        put(ssp, "choose_hosts", lambda old: lambda joins, speeds: tuple(tuple(range(len(speeds))) for _ in joins)),
        "ssp", "1000", id="every join has all hosts: (k - 1) r is not counted",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("breaks", "paper", "figure"), CASES)
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch, breaks: Patch, paper: str, figure: str) -> None:
    breaks(monkeypatch)
    made = PAPERS[paper].only((figure,))[0].make(Settings(quick=True))
    failed = [f"{claim.text}: {claim.ours}" for claim in made.claims if not claim.holds and not claim.reason]
    print("; ".join(failed))
    assert failed
