"""From when on a synopsis can answer, while queries come and go."""

from __future__ import annotations

import random

import pytest

from headrace.model import DataType, Feed, Kind, Measure, Synopsis
from headrace.planning import Coverage, Kept, cover, forget

SYNOPSIS = Synopsis((Feed("s", None, (), None),), ())
ROWS = Measure("rows", None, DataType(Kind.BIGINT))
SUM = Measure("sum", ("s.x",), DataType(Kind.INT))
MAX = Measure("max", ("s.x",), DataType(Kind.INT))


def kept(pane_us: int, *measures: Measure) -> Kept:
    return Kept(SYNOPSIS, (ROWS, *measures), pane_us)


def since(coverage: Coverage, pane_us: int, *measures: Measure) -> int | None:
    return coverage.complete_since([m.column for m in (ROWS, *measures)], pane_us)


def test_a_synopsis_from_the_beginning_is_complete():
    found = cover(None, kept(20, SUM), None)
    assert found == Coverage(None, {ROWS.column: None, SUM.column: None}, ((20, None),))
    assert since(found, 20, SUM) is None


def test_one_that_comes_later_is_complete_from_then():
    found = cover(None, kept(20, SUM), 70)
    assert (since(found, 20, SUM), since(found, 60)) == (70, 70)


def test_a_measure_added_later_is_complete_from_then_and_the_others_stay():
    first = cover(None, kept(20, SUM), None)
    found = cover(first, kept(20, SUM, MAX), 70)
    assert (since(found, 20, SUM), since(found, 20, MAX), since(found, 20, SUM, MAX)) == (None, 70, 70)
    again = cover(found, kept(20, SUM, MAX), 500)
    assert again == found, "what is there is not added again"


def test_a_measure_that_left_and_came_back_is_complete_from_its_return():
    first = cover(None, kept(20, SUM), None)
    gone = cover(first, kept(20), 70)
    assert gone.columns == {ROWS.column: None}
    back = cover(gone, kept(20, SUM), 90)
    assert (since(back, 20), since(back, 20, SUM)) == (None, 90)


@pytest.mark.parametrize(
    ("panes", "asked", "wanted"),
    [
        pytest.param([(60, None)], 60, None, id="as long as the panes"),
        pytest.param([(20, None)], 60, None, id="a multiple of them"),
        pytest.param([(60, None), (20, 70)], 60, None, id="panes refined: who asks for long ones has all"),
        pytest.param([(60, None), (20, 70)], 20, 70, id="who asks for short ones has them since"),
        pytest.param([(60, None), (20, 70)], 40, 70, id="who asks for a length that does not fit too"),
        pytest.param([(20, None), (60, 70)], 60, None, id="panes coarsened: who asks for long ones has all"),
        pytest.param([(20, None), (60, 70), (20, 90)], 20, 90, id="coarsened in between: since refined again"),
        pytest.param([(20, None), (60, 70), (20, 90)], 60, None, id="which long ones do not notice"),
        pytest.param([(60, None), (20, 70), (60, 90), (30, 110)], 30, 110, id="the last that does not fit counts"),
        pytest.param([(60, None), (20, 70), (10, 90)], 20, 70, id="refined twice: since it was fine enough"),
        pytest.param([(30, None), (60, None)], 30, None, id="coarsened before the first row"),
    ],
)
def test_panes(panes: list[tuple[int, int | None]], asked: int, wanted: int | None):
    found = None
    for length, seen in panes:
        found = cover(found, kept(length), seen)
    assert found is not None
    assert found.panes == tuple(panes)
    assert since(found, asked) == wanted


def test_the_latest_of_all_reasons_counts():
    found = cover(None, kept(60, SUM), 10)
    found = cover(found, kept(20, SUM, MAX), 70)
    assert since(found, 60, SUM) == 10
    assert since(found, 60, MAX) == 70
    assert since(forget(found, 100, None), 60, SUM) == 100


@pytest.mark.parametrize(
    ("before", "wanted_since", "wanted_panes"),
    [
        pytest.param(5, 10, ((60, None), (20, 70)), id="what is gone already is not gone again"),
        pytest.param(69, 69, ((60, None), (20, 70)), id="coarse panes are still there"),
        pytest.param(70, 70, ((20, 70),), id="all panes left are fine"),
        pytest.param(500, 500, ((20, 70),), id="and stay so"),
    ],
)
def test_expiry(before: int, wanted_since: int, wanted_panes: tuple[tuple[int, int | None], ...]):
    found = forget(Coverage(10, {"n": None}, ((60, None), (20, 70))), before, 3.5)
    assert found == Coverage(wanted_since, {"n": None}, wanted_panes, 3.5)


def test_expiry_keeps_the_panes_there_are_now():
    assert forget(Coverage(None, {}, ((60, None),)), 100, None).panes == ((60, None),)


def test_rows_per_epoch_stay_while_measures_change():
    measured = forget(cover(None, kept(20), None), 40, 12.5)
    assert cover(measured, kept(10, SUM), 50).rows == 12.5


def test_no_window_is_promised_that_lacks_rows():
    """Rows in order of time; each has its pane by the length, and its measures by the set, of its moment."""
    for seed in range(200):
        rng = random.Random(seed)
        panes: list[tuple[int, int, bool]] = []  # begin, row, whether the sum was kept
        coverage, now, gone = None, rng.randint(0, 50), -(10**9)
        for _ in range(rng.randint(1, 6)):
            length, summed = rng.choice([10, 20, 30, 60]), rng.random() < 0.6
            coverage = cover(coverage, kept(length, *([SUM] if summed else [])), now if panes else None)
            for _ in range(rng.randint(1, 8)):
                now += rng.randint(0, 15)
                panes.append((now // length * length, now, summed))
            now += 1
            if rng.random() < 0.3:
                gone = max(gone, now - rng.randint(10, 200))
                coverage = forget(coverage, gone, None)
        assert coverage is not None
        measures = [SUM] if summed else []
        for asked in (10, 20, 30, 60):
            if asked % length:
                continue
            least = since(coverage, asked, *measures)
            for begin in range(-60 // asked * asked, now + asked, asked):
                if least is not None and begin < least:
                    continue
                end = begin + asked
                inside = [row for p, row, s in panes if p >= gone and begin <= p < end and (s or not measures)]
                assert inside == [row for _, row, _ in panes if begin <= row < end], (seed, asked, begin, coverage)
