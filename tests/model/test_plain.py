"""Decisions and what is remembered survive JSON; what is no such value is refused by its place."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.operators.port import Answered, Ask, Decided, Made, Moment, Operator, Taking
from headrace.engine.standing import Standing
from headrace.engine.state.checkpoint import Manifest
from headrace.model import (
    Admission,
    EpochDecision,
    Estimate,
    JoinDecision,
    JoinMeasures,
    JoinState,
    JoinWay,
    KeyedDecision,
    KeyedMeasures,
    KeyedState,
    Move,
    Observed,
    ScheduleDecision,
    Shed,
    SheddingDecision,
    Snapshot,
    Split,
    TablesDecision,
    TablesState,
    plain,
    restored,
)
from headrace.planning import Schedule, Shedding

WHOLE = st.integers(-(2**62), 2**62)
COUNT = st.integers(0, 10**6)
SHARE = st.floats(0, 1)
TEXT = st.text(max_size=12)
SNAPSHOT = {"folder": "a", "definition": "d", "read_us": 1, "rows": 2, "bytes": 3, "reason": "", "tried_us": None}
WORD = st.from_regex(r"[a-z_0-9]{1,12}", fullmatch=True)


def any_of(type_: Any) -> st.SearchStrategy[Any]:
    """Any value that annotations allow, with what objects themselves insist on."""
    origin, arguments = typing.get_origin(type_), get_args(type_)
    if type_ is Move:
        return st.builds(Move, COUNT, st.just(0), st.integers(1, 9), COUNT, TEXT)
    if type_ is Split:
        return st.builds(Split, COUNT, st.just((0, 1)), TEXT)
    if type_ is KeyedDecision:
        return st.builds(KeyedDecision, st.lists(st.integers(0, 1), max_size=4).map(tuple), st.just(2),
                         moves=any_of(tuple[Move, ...]), waits=any_of(tuple[int, ...]), reason=TEXT)  # fmt: skip
    if type_ is JoinDecision:
        split = st.sampled_from((None, "left", "right"))
        ways = st.builds(JoinWay, TEXT, split, any_of(tuple[int, ...]), st.just((0, 1)), TEXT,
                         any_of(Mapping[str, float]), SHARE)  # fmt: skip
        flags = [st.booleans() for _ in range(3)]
        return st.builds(JoinDecision, ways, st.just(2), any_of(tuple[float, ...]), *flags)
    if type_ is Admission:
        keep = st.dictionaries(TEXT, st.floats(0, 1, exclude_max=True), max_size=3)
        return st.builds(Admission, st.lists(TEXT, min_size=1, max_size=3).map(tuple), WHOLE, keep)
    if type_ is TablesDecision or type_ is TablesState:
        return st.dictionaries(WORD, any_of(Snapshot), max_size=3).map(type_)
    if type_ is Snapshot:
        return st.builds(Snapshot, WORD, TEXT, WHOLE, COUNT, COUNT, TEXT, any_of(int | None))
    if type_ is Estimate:
        return st.builds(Estimate, SHARE, SHARE, COUNT)
    if type_ is Shed:
        return st.tuples(COUNT, COUNT).map(lambda both: Shed(max(both), min(both)))
    if is_dataclass(type_):
        hints = get_type_hints(type_)
        return st.builds(type_, **{field.name: any_of(hints[field.name]) for field in fields(type_)})
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return st.lists(any_of(arguments[0]), max_size=3).map(tuple)
        return st.tuples(*map(any_of, arguments))
    if origin is not None and issubclass(origin, Mapping) if isinstance(origin, type) else False:
        return st.dictionaries(any_of(arguments[0]), any_of(arguments[1]), max_size=3)
    if arguments:
        return st.one_of(*map(any_of, arguments))
    simple = {int: WHOLE, float: SHARE, str: TEXT, bool: st.booleans(), type(None): st.none()}
    return simple[type_]


@pytest.mark.parametrize(
    "type_",
    [
        JoinDecision,
        KeyedDecision,
        ScheduleDecision,
        SheddingDecision,
        JoinState,
        KeyedState,
        Schedule,
        Shedding,
        JoinMeasures,
        KeyedMeasures,
        Observed,
        Shed,
        TablesState,
        EpochDecision,
    ],
)
@settings(max_examples=40)
@given(data=st.data())
def test_every_kind_of_decision_and_state_survives_json(type_: type, data: st.DataObject):
    value = data.draw(any_of(type_))
    assert restored(type_, json.loads(json.dumps(plain(value)))) == value


def mentioned(type_: Any) -> set[Any]:
    """All types that an annotation is made of."""
    if isinstance(type_, list):  # of a callable's arguments
        return {found for argument in type_ for found in mentioned(argument)}
    return {type_} | {found for argument in get_args(type_) for found in mentioned(argument)}


@pytest.mark.parametrize("type_", [EpochDecision, Manifest, Standing, Ask, Decided, Taking, Moment, Answered, Made])
def test_what_is_logged_and_what_operators_see_is_typed(type_: type):
    names = {**vars(__import__(type_.__module__, fromlist=["x"])), "DataFrame": object}
    for name, hint in get_type_hints(type_, names).items():
        assert Any not in mentioned(hint), f"{type_.__name__}.{name}"


@pytest.mark.parametrize("call", ["check", "decide", "takes", "ends", "answer"])
def test_the_calls_of_an_operator_are_typed(call: str):
    names = vars(__import__(Operator.__module__, fromlist=["x"]))
    for name, hint in get_type_hints(getattr(Operator, call), names).items():
        assert Any not in mentioned(hint), f"{call}: {name}"


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        pytest.param(JoinMeasures, {"received": []}, "has no 'held'", id="something is missing"),
        pytest.param(Observed, {"jobs": "2"}, "Observed.jobs must be int", id="another type"),
        pytest.param(Observed, {"jobs": True}, "Observed.jobs must be int", id="true is no number"),
        pytest.param(Observed, {"job": 2}, "unknown 'job'", id="an unknown name"),
        pytest.param(Observed, {"flows": {"q": {"kind": "what"}}}, r"Observed.flows.q is of no known kind 'what'",
                     id="an unknown kind"),
        pytest.param(Observed, {"flows": {"q": 3}}, "no known kind None", id="a value where an object belongs"),
        pytest.param(Observed, [], "must be an object", id="an array where an object belongs"),
        pytest.param(Observed, {"rows": []}, "Observed.rows must be an object", id="an array where a mapping belongs"),
        pytest.param(TablesState, {"snapshots": {"../up": SNAPSHOT}}, "'../up' names no table",
                     id="a place for a table"),
        pytest.param(TablesState, {"snapshots": {"t": {**SNAPSHOT, "folder": "a/b"}}}, "'a/b' names no table",
                     id="a place for a snapshot"),
        pytest.param(KeyedMeasures, {"busy_s": 1}, "has no 'step_s'", id="the first that is missing is named"),
    ],
)  # fmt: skip
def test_what_is_no_such_value_is_refused_by_its_place(type_: type, value: Any, why: str):
    with pytest.raises(ValueError, match=why):
        restored(type_, value)


def test_what_json_has_no_word_for_is_refused():
    with pytest.raises(TypeError, match="set is no plain value"):
        plain({"a": {1, 2}})
