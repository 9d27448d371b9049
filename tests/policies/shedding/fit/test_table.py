"""Tables and plans as JSON, which is how they travel between sites."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

from headrace.policies.shedding import Fair, Network, Place, Port, Throughput, offered
from headrace.policies.shedding.fit import Table, TableSettings, build_table, look_up
from policies.shedding.worlds import one_place

F = Fraction


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(one_place(0.3, 0.7), id="floats"),
        pytest.param(one_place(F(1), F(3), capacity=F(2)), id="fractions"),
    ],
)
@pytest.mark.parametrize("objective", [Throughput(), None], ids=["throughput", "fairness"])
def test_tables_and_plans_survive_json(place: Place, objective: Throughput | None):
    one = F(1) if place.exact else 1.0
    fair = Fair(offered(Network((place,)), {Port("hub", "i0"): one, Port("hub", "i1"): one}))
    built = build_table(place, {}, objective or fair, TableSettings(size=30, levels=4))
    assert Table.from_json(json.loads(json.dumps(built.table.to_json()))) == built.table
    plan = look_up(built, (one, one))
    assert type(plan).from_json(json.loads(json.dumps(plan.to_json()))) == plan
    assert Place.from_json(json.loads(json.dumps(place.to_json()))) == place


@pytest.mark.parametrize(
    ("part", "message"),
    [
        pytest.param({"worth": [0.0]}, "worth of the table of 'hub' has shape", id="too few worths"),
        pytest.param({"needs": [[9.0]] * 5}, "needs more rows at a point than arrive", id="rows that do not arrive"),
        pytest.param({"worth": [math.inf] * 5}, "worth of the table of 'hub' is not finite", id="an infinite worth"),
        pytest.param({"grid": {"spreads": [1.0], "steps": [10**9]}}, "has shape", id="a grid of a billion points"),
        pytest.param({"grid": {"spreads": ["1/0"], "steps": [4]}}, "this is not a table", id="a spread of no size"),
        pytest.param({"gains": None}, "this is not a table", id="no gains"),
        pytest.param({"never": []}, "not as many steps, gains and flags", id="a flag too few"),
    ],
)
def test_what_is_no_table_is_refused(part: dict[str, object], message: str):
    sent = build_table(one_place(0.5), {}, Throughput(), TableSettings(size=5)).table.to_json()
    assert Table.from_json(sent).place == "hub"
    with pytest.raises(ValueError, match=message):
        Table.from_json({**sent, **part})
