"""A user's own pipeline in simulated time: what it would do at other rates and on other hosts."""

from headrace.simulation.whatif.predicted import Prediction, Span
from headrace.simulation.whatif.scenario import Rate, Scenario, rate_of, slow_hosts
from headrace.simulation.whatif.simulate import Found, Setup, find_hosts, find_rate, set_up, simulate
from headrace.simulation.whatif.telling import COLUMNS, epoch_rows, found_text, prediction_json, prediction_text
from headrace.simulation.whatif.world import Beat

__all__ = [
    "COLUMNS",
    "Beat",
    "Found",
    "Prediction",
    "Rate",
    "Scenario",
    "Setup",
    "Span",
    "epoch_rows",
    "find_hosts",
    "find_rate",
    "found_text",
    "prediction_json",
    "prediction_text",
    "rate_of",
    "set_up",
    "simulate",
    "slow_hosts",
]
