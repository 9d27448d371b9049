"""Worlds in simulated time: the papers' machines, driven by the policies that run."""

from headrace.simulation.flux_stage import (
    Burden,
    FluxStage,
    Played,
    Pressure,
    Second,
    hottest_node,
    paper_settings,
    play_stage,
)
from headrace.simulation.join_cluster import (
    JoinCluster,
    Sampled,
    Spread,
    demand_of,
    draw_cluster,
    drawn_hosts,
    play_joins,
    single_hosts,
)

__all__ = [
    "Burden",
    "FluxStage",
    "JoinCluster",
    "Played",
    "Pressure",
    "Sampled",
    "Second",
    "Spread",
    "demand_of",
    "draw_cluster",
    "drawn_hosts",
    "hottest_node",
    "paper_settings",
    "play_joins",
    "play_stage",
    "single_hosts",
]
