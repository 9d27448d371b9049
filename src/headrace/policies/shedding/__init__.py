"""Shedding load where it costs least: two strategies and a baseline over one network of places.

network, rates, objective ─┬▶ fit/              feasible input tables, looked up place by place: strategy `fit`
                           ├▶ central.py        the optimum, by linear programming: strategy `central`
                           └▶ uncoordinated.py  every place for itself: the baseline
                              plan.py           what each of them returns, and the outcome that judges it
costs.py     what rows cost, learned from epochs as lines over rows (line.py)
overload.py  whether there is overload at all
parting.py   which queries share no synopsis with others, so that they lose fewer rows
"""

from headrace.policies.shedding.amounts import Amount
from headrace.policies.shedding.central import plan_centrally
from headrace.policies.shedding.costs import RowCosts, RowSample, learn_row_costs
from headrace.policies.shedding.network import Branch, Input, Network, Place, Port, expected, link, offered
from headrace.policies.shedding.objective import Fair, Objective, Throughput, by_priority
from headrace.policies.shedding.overload import Overload, OverloadState, Waiting, detect_overload
from headrace.policies.shedding.parting import Sharer, part_sharers
from headrace.policies.shedding.plan import InputPlan, Outcome, PlacePlan, Plan, load_of, outcome
from headrace.policies.shedding.uncoordinated import plan_uncoordinated, take_in_turn

__all__ = [
    "Amount",
    "Branch",
    "Fair",
    "Input",
    "InputPlan",
    "Network",
    "Objective",
    "Outcome",
    "Overload",
    "OverloadState",
    "Place",
    "PlacePlan",
    "Plan",
    "Port",
    "RowCosts",
    "RowSample",
    "Sharer",
    "Throughput",
    "Waiting",
    "by_priority",
    "detect_overload",
    "expected",
    "learn_row_costs",
    "link",
    "load_of",
    "offered",
    "outcome",
    "part_sharers",
    "plan_centrally",
    "plan_uncoordinated",
    "take_in_turn",
]
