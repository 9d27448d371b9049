"""What an epoch did and how long that took, as its manifest says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.admission import Shed
from headrace.model.joining import JoinMeasures
from headrace.model.keyed import KeyedMeasures

__all__ = ["Observed"]


@dataclass(frozen=True)
class Observed:
    """One epoch: its wall time, seconds in all and by step, Spark jobs, rows by stream, windows answered by query.

    `replay` says that it was run before and not committed; `flows` has what operators measured, `edges` the accounts of
    edges that shed in it.
    """

    wall_us: int = 0
    seconds: float = 0.0
    steps_s: Mapping[str, float] = field(default_factory=dict)
    jobs: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    due: Mapping[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    replay: bool = False
    flows: Mapping[str, JoinMeasures | KeyedMeasures] = field(default_factory=dict)
    edges: Mapping[str, Shed] = field(default_factory=dict)
