"""A server runs what the latest version says, in whatever order versions come."""

from __future__ import annotations

from itertools import permutations

import pytest

from headrace.policies.placement.distributed import (
    AddSubtree,
    Ancestor,
    InvalidateMap,
    Map,
    Message,
    OperatorMapped,
    Rules,
    Send,
    ServerState,
    Table,
    ToZone,
    View,
    serve,
)

HERE = Table.fixed("paris")
STEP = Ancestor("join", ToZone("join", "join"), None, ("paris", "rome"), ())
MAP = Map("packets", "paris", HERE, ("paris",), (STEP,), View())


def mapped(version: int) -> Message:
    return OperatorMapped("join", HERE["paris"], HERE, version)


def invalid(version: int) -> Message:
    return InvalidateMap("join", version)


@pytest.mark.parametrize(
    ("messages", "running"),
    [
        pytest.param([mapped(0)], ("join",), id="runs what it is told to"),
        pytest.param([mapped(0), invalid(1)], (), id="a later version takes the operator away"),
        pytest.param([mapped(0), invalid(1), mapped(2)], ("join",), id="and a still later one brings it back"),
        pytest.param([invalid(2), mapped(3)], ("join",), id="may be told to stop before it was told to run"),
        pytest.param([mapped(0), mapped(0), invalid(1), invalid(1)], (), id="hears the same twice"),
    ],
)
def test_the_latest_version_counts_in_any_order(messages: list[Message], running: tuple[str, ...]):
    for order in permutations(messages):
        state = ServerState()
        for message in order:
            state, sends = serve(state, message)
            assert sends == ()
        assert state.running == running


def test_a_source_forwards_its_map_once_with_the_sites_on_the_way_as_candidates():
    state, sends = serve(ServerState(), MAP, ("hub", "lyon", "nice", "paris"))
    (send,) = sends
    assert isinstance(send, Send)
    assert send.to == ToZone("join", "join")
    assert isinstance(send.message, Map)
    assert send.message.candidates == ("lyon", "nice")
    assert serve(state, MAP, ("hub", "paris")) == (state, ())


def test_what_is_for_coordinators_is_refused():
    message = AddSubtree("join", (), {}, Rules("edge", "hub", None, 1), (), View())
    with pytest.raises(ValueError, match="a server takes OPERATOR_MAPPED, INVALIDATE_MAP and MAP, not ADD_SUBTREE"):
        serve(ServerState(), message)
