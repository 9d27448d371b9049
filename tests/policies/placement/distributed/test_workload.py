"""How a tree is cut into zones, and what the proxy tells coordinators and sources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.model import Network
from headrace.policies.placement.distributed import AddSubtree, Map, OperatorMapped, ToServer, ToZone, workload_of
from headrace.policies.placement.distributed.workload import Workload
from headrace.policies.placement.problem import Flow, Part, Problem

NET = Network(("paris", "rome", "hub"), ((0.0, 30.0, 12.0), (30.0, 0.0, 25.0), (12.0, 25.0, 0.0)))
# answers@hub <- top <- middle <- low <- a@paris, b@rome; top also reads c@paris.
TREE = Problem(
    (
        Part("a", "paris"),
        Part("b", "rome"),
        Part("c", "paris"),
        Part("low"),
        Part("middle"),
        Part("top"),
        Part("answers", "hub"),
    ),
    (
        Flow("a", "low", 5.0),
        Flow("b", "low", 4.0),
        Flow("low", "middle", 3.0),
        Flow("middle", "top", 2.0),
        Flow("c", "top", 6.0),
        Flow("top", "answers", 1.0),
    ),
    NET,
)


def workload(problem: Problem = TREE, levels: int = 1) -> Workload:
    return workload_of(problem, "edge+", levels, 8, NET.distance_ms)


@pytest.mark.parametrize(
    ("levels", "zones"),
    [
        pytest.param(1, {"answers": {"top", "answers"}, "middle": {"middle"}, "low": {"low"}}, id="one level each"),
        pytest.param(2, {"answers": {"middle", "top", "answers"}, "low": {"low"}}, id="two levels"),
        pytest.param(3, {"answers": {"low", "middle", "top", "answers"}}, id="all in the proxy's zone"),
    ],
)
def test_zones(levels: int, zones: dict[str, set[str]]):
    found = workload(levels=levels)
    subtrees = [send.message for send in found.sends if isinstance(send.message, AddSubtree)]
    assert {subtree.zone: {task.operator for task in subtree.tasks} for subtree in subtrees} == zones
    assert {name: zone.zone for name, zone in found.zones.items()} == {
        name: zone for zone, names in zones.items() for name in names
    }


def test_the_proxy_coordinates_the_zone_of_the_answers_and_others_are_found_by_their_name():
    assert workload().zones == {
        "answers": ToZone("answers", "hub"),
        "top": ToZone("answers", "hub"),
        "middle": ToZone("middle", "middle"),
        "low": ToZone("low", "low"),
    }


def test_a_subtree_names_its_boundary_and_has_its_root_last():
    (message,) = [
        s.message for s in workload().sends if isinstance(s.message, AddSubtree) and s.message.zone == "answers"
    ]
    assert [task.operator for task in message.tasks] == ["top", "answers"]
    assert message.boundary == {"middle": ToZone("middle", "middle"), "c": ToServer("paris")}
    assert message.places == ("paris", "rome", "hub")
    assert message.view.over(("paris", "rome", "hub")).tolist() == [
        [0.0, float("inf"), 12.0],
        [float("inf"), 0.0, 25.0],
        [12.0, 25.0, 0.0],
    ]


def test_a_source_is_told_that_it_runs_and_its_path_to_the_root():
    told = [send.message for send in workload().sends if send.to == ToServer("rome", routed=True)]
    mapped, message = told
    assert isinstance(mapped, OperatorMapped)
    assert isinstance(message, Map)
    assert (mapped.operator, message.operator, message.place) == ("b", "b", "rome")
    assert [step.operator for step in message.path] == ["low", "middle", "top", "answers"]
    assert [step.leaves for step in message.path] == [("paris", "rome"), ("paris", "rome"), ("paris", "rome"), ("hub",)]
    # Sources of both inputs of `top` are at paris; what has one input has all places below it.
    assert [step.common for step in message.path] == [(), ("paris", "rome"), ("paris",), ()]


@pytest.mark.parametrize(
    ("problem", "levels", "message"),
    [
        pytest.param(TREE, 0, "1 level of operators or more, not 0", id="zones without operators"),
        pytest.param(
            replace(TREE, flows=(*TREE.flows, Flow("low", "top", 1.0))), 1, "'low' feeds two parts", id="no tree"
        ),
        pytest.param(
            Problem(
                (Part("a", "paris"), Part("b", "rome"), Part("x", "hub"), Part("y", "hub")),
                (Flow("a", "x", 1.0), Flow("b", "y", 1.0)),
                NET,
            ),
            1,
            r"one tree at a time, not 2 \(x, y\)",
            id="two trees",
        ),
        pytest.param(replace(TREE, capacity={"hub": 3.0}), 1, "know no capacities", id="capacities"),
    ],
)
def test_what_coordinators_cannot_place_is_refused(problem: Problem, levels: int, message: str):
    with pytest.raises(ValueError, match=message):
        workload(problem, levels)
