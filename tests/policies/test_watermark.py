"""How event time advances, and how silent streams stop holding others back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model import Column, DataType, Idle, Kind, Stream
from headrace.policies import StreamClock, advance_clock, find_idle, follow_others, ran_ahead, watermark_of

SECOND = 1_000_000


def stream(name: str = "s", lateness_us: int = 5, idle_us: int = 60) -> Stream:
    return Stream(name, (Column("ts", DataType(Kind.TIMESTAMP)),), "ts", lateness_us=lateness_us, idle_us=idle_us)


@pytest.mark.parametrize(
    ("before", "seen", "after"),
    [
        pytest.param(
            StreamClock(),
            (10, 30),
            StreamClock(10, 30, 25, heard_us=99),
            id="the first rows start the clock, the watermark stays the lateness behind the greatest",
        ),
        pytest.param(
            StreamClock(10, 30, 25, 50), None, StreamClock(10, 30, 25, 50), id="an epoch without rows changes nothing"
        ),
        pytest.param(StreamClock(), None, StreamClock(), id="a stream that has not begun stays so"),
        pytest.param(
            StreamClock(10, 30, 25, 50),
            (26, 28),
            StreamClock(10, 30, 25, 99),
            id="rows in disorder do not turn the watermark back",
        ),
        pytest.param(
            StreamClock(10, 30, 25, 50),
            (7, 40),
            StreamClock(7, 40, 35, 99),
            id="an older row moves the first time back, a newer one the watermark on",
        ),
        pytest.param(
            StreamClock(10, 30, 1000, 50),
            (1000, 1001),
            StreamClock(10, 1001, 1000, 99),
            id="a watermark that an idle decision moved on stays there",
        ),
        pytest.param(StreamClock(), (-50, -20), StreamClock(-50, -20, -25, 99), id="times before 1970 are times"),
        pytest.param(StreamClock(), (0, 0), StreamClock(0, 0, -5, 99), id="the epoch of Unix is a time, not nothing"),
        pytest.param(
            StreamClock(0, 0, 0, 0), (-3, -2), StreamClock(-3, 0, 0, 99), id="a clock that stands at zero has begun"
        ),
    ],
)
def test_clock_advances(before: StreamClock, seen: tuple[int, int] | None, after: StreamClock):
    assert advance_clock(before, stream(lateness_us=5), seen, listened_us=99) == after


@pytest.mark.parametrize(
    ("before", "seen", "mark", "after"),
    [
        pytest.param(
            StreamClock(), (10, 30), None, StreamClock(10, 30, None, 99), id="rows without a mark are no time"
        ),
        pytest.param(StreamClock(), None, 20, StreamClock(None, None, 20, 99), id="a mark without rows is"),
        pytest.param(
            StreamClock(10, 30, 20, 50), (25, 90), 40, StreamClock(10, 90, 40, 99), id="rows may be ahead of the mark"
        ),
        pytest.param(
            StreamClock(10, 30, 20, 50), None, 20, StreamClock(10, 30, 20, 50), id="a mark that stays is silent"
        ),
        pytest.param(
            StreamClock(10, 30, 70, 50), None, 40, StreamClock(10, 30, 70, 50), id="an idle decision was ahead of it"
        ),
    ],
)
def test_a_stream_that_is_told_its_watermark_follows_it(
    before: StreamClock, seen: tuple[int, int] | None, mark: int | None, after: StreamClock
):
    assert advance_clock(before, stream(lateness_us=5), seen, 99, {"s": mark}) == after
    assert advance_clock(before, stream(lateness_us=5), seen, 99, {"other": mark}) != after or seen is None


epochs = st.lists(
    st.none() | st.tuples(st.integers(-100, 100), st.integers(0, 50)).map(lambda p: (p[0], p[0] + p[1])), max_size=8
)


@given(epochs, st.integers(0, 30))
@settings(max_examples=50)
def test_watermark_is_the_greatest_time_less_the_lateness_and_never_goes_back(
    seen: list[tuple[int, int] | None], lateness: int
):
    clock, marks = StreamClock(), []
    for wall, times in enumerate(seen):
        clock = advance_clock(clock, stream(lateness_us=lateness), times, wall)
        marks.append(clock.watermark_us)
    known = [times for times in seen if times is not None]
    assert clock.last_us == max((last for _, last in known), default=None)
    assert clock.first_us == min((first for first, _ in known), default=None)
    assert clock.watermark_us == (None if clock.last_us is None else clock.last_us - lateness)
    begun = [mark for mark in marks if mark is not None]
    assert begun == sorted(begun)


def clock(watermark_us: int, heard_us: int) -> StreamClock:
    return StreamClock(0, watermark_us + 5, watermark_us, heard_us)


ALONE, PAIR = [["a"], ["b"]], [["a", "b"]]


@pytest.mark.parametrize(
    ("clocks", "groups", "idle"),
    [
        #   wall time 160, silent means: nothing heard since 100
        pytest.param({"a": clock(10, 120), "b": clock(90, 140)}, PAIR, {}, id="nobody is idle before its time"),
        pytest.param({"a": clock(10, 99), "b": clock(90, 160)}, PAIR, {"a": 90}, id="the silent one follows the other"),
        pytest.param(
            {"a": clock(10, 100), "b": clock(90, 160)}, PAIR, {"a": 90}, id="silent for exactly `idle` is silent"
        ),
        pytest.param({"a": clock(10, 101), "b": clock(90, 160)}, PAIR, {}, id="a microsecond less is not"),
        pytest.param({"a": clock(10, 0), "b": clock(90, 0)}, PAIR, {}, id="when all are silent nobody moves"),
        pytest.param({"a": clock(90, 0), "b": clock(10, 160)}, PAIR, {}, id="a silent stream that is ahead stays"),
        pytest.param({"a": clock(10, 0), "b": clock(90, 160)}, ALONE, {}, id="streams that no query joins stay apart"),
        pytest.param(
            {"a": clock(1, 0), "b": clock(90, 160), "c": clock(70, 160)},
            [["a", "b"], ["c", "a"]],
            {"a": 70},
            id="it follows the least of those awake, over all its queries",
        ),
        pytest.param(
            {"a": clock(1, 0), "b": clock(90, 160), "c": clock(70, 160)},
            [["a", "b"], ["c"]],
            {"a": 90},
            id="but not those that no query reads with it",
        ),
        pytest.param(
            {"a": clock(1, 0), "b": clock(2, 50), "c": clock(70, 160)},
            [["a", "b", "c"]],
            {"a": 70, "b": 70},
            id="two silent ones follow the third",
        ),
        pytest.param(
            {"a": StreamClock(), "b": clock(90, 160)}, PAIR, {"a": 90}, id="a stream that never began is silent too"
        ),
        pytest.param({"a": clock(-90, 0), "b": clock(-40, 160)}, PAIR, {"a": -40}, id="times before 1970 are followed"),
        pytest.param({"a": clock(-9, 0), "b": clock(0, 160)}, PAIR, {"a": 0}, id="zero is a time to follow"),
    ],
)
def test_idle_streams_follow(clocks: dict[str, StreamClock], groups: list[list[str]], idle: dict[str, int]):
    found = find_idle(clocks, [stream(name) for name in clocks], groups, listened_us=160, since_us=0)
    moved = follow_others(clocks, [decision.stream for decision in found], groups)
    assert {name: moved[name].watermark_us for name in moved if moved[name] != clocks[name]} == idle


def test_a_stream_that_has_not_begun_gives_no_time_to_follow():
    clocks = {"a": clock(1, 0), "b": StreamClock(), "c": clock(70, 160)}
    streams = [stream("a"), stream("b", idle_us=1000), stream("c")]
    found = find_idle(clocks, streams, [["a", "b", "c"]], listened_us=160, since_us=0)
    assert follow_others(clocks, [decision.stream for decision in found], [["a", "b", "c"]]) == clocks


@pytest.mark.parametrize(
    ("since", "idle"),
    [
        pytest.param(0, ["a"], id="a run that has listened all the time"),
        pytest.param(100, ["a"], id="one that has listened for `idle`"),
        pytest.param(101, [], id="one that has not: what came before it began may still be read"),
    ],
)
def test_silence_counts_while_somebody_listens(since: int, idle: list[str]):
    found = find_idle({"a": clock(1, 5), "b": clock(9, 160)}, [stream("a"), stream("b")], PAIR, 160, since)
    assert [decision.stream for decision in found] == idle


def test_an_idle_decision_tells_how_long_the_silence_was():
    streams = [stream("a", idle_us=60 * SECOND), stream("b", idle_us=60 * SECOND)]
    clocks = {"a": clock(1, 0), "b": clock(9, 90 * SECOND + 1)}
    assert find_idle(clocks, streams, PAIR, 90 * SECOND + 1, 0) == (Idle("a", "silent for 90 s"),)


def test_idle_decisions_move_watermarks_and_nothing_else():
    clocks = {"a": StreamClock(1, 8, 3, 40), "b": clock(9, 90)}
    moved = follow_others(clocks, ["a"], PAIR)
    assert moved == {"a": StreamClock(1, 8, 9, 40), "b": clocks["b"]}
    assert clocks["a"].watermark_us == 3, "the input is not changed"


@pytest.mark.parametrize(
    ("marks", "streams", "mark"),
    [
        pytest.param({"a": 5, "b": 3}, ["a", "b"], 3, id="a query follows its slowest stream"),
        pytest.param({"a": 5, "b": 3}, ["a"], 5, id="and no other"),
        pytest.param({"a": 5, "b": None}, ["a", "b"], None, id="it waits for a stream that has not begun"),
        pytest.param({"a": 0, "b": -7}, ["a", "b"], -7, id="zero and less are times"),
        pytest.param({"a": 5}, [], None, id="no stream, no time"),
    ],
)
def test_watermark_of_a_query(marks: dict[str, int | None], streams: list[str], mark: int | None):
    assert watermark_of({name: StreamClock(watermark_us=m) for name, m in marks.items()}, streams) == mark


MINUTE = 60 * SECOND


@pytest.mark.parametrize(
    ("before", "mark", "lateness", "told"),
    [
        pytest.param(100, 100 + 10 * MINUTE, 5, "10 min beyond its last row", id="by a window of ten minutes"),
        pytest.param(100, 100 + MINUTE, 5, None, id="by a minute"),
        pytest.param(100, 100 + 10 * MINUTE, 10 * MINUTE, None, id="by no more than rows may be late"),
        pytest.param(100 + 10 * MINUTE, 100 + 10 * MINUTE, 5, None, id="by the flush before this one"),
        pytest.param(None, None, 5, None, id="not at all: there was no row"),
    ],
)
def test_a_flush_that_runs_ahead_of_the_rows_is_told(
    before: int | None, mark: int | None, lateness: int, told: str | None
) -> None:
    after = StreamClock(0, None if mark is None else 100, mark)
    found = ran_ahead(StreamClock(0, 100, before), after, stream(lateness_us=lateness))
    assert (found is None) == (told is None)
    assert told is None or told in str(found)
