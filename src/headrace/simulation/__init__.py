"""Worlds in simulated time: the papers' machines, driven by the policies that run."""

from headrace.simulation.flux_stage import Burden, FluxStage, Second, play_stage

__all__ = ["Burden", "FluxStage", "Second", "play_stage"]
