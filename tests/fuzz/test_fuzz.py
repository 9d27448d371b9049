"""A short run of the fuzzer, and proof that it has teeth. `./run fuzz --queries 2000` is the long one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fuzz.oracle import aligned_ends, covers, difference
from fuzz.play import Settings, play
from fuzz.queries import make_query
from headrace.engine.operators import answering

SEED = "ci"
QUERIES = 50


def test_random_queries_equal_sparks_batch_answers(spark: Any, tmp_path: Path) -> None:
    settings = Settings(bins=2, schedule="hybrid-late-pending", join="auto", state_io=("arrow", "arrow"), cuts=(1, 2))
    made = play(spark, tmp_path / "home", SEED, QUERIES, settings=settings, epochs=2)
    wrong = [f"{o.query.sql}\n{o.detail}\n./run fuzz --replay {o.seed}" for o in made.of("mismatch")]
    assert not wrong, "\n\n".join(wrong)
    assert len(made.of("refused")) < QUERIES / 4, [o.detail for o in made.of("refused")]
    assert len(made.of("equal")) > QUERIES / 2
    assert sum(outcome.rows for outcome in made.of("equal")) > 200, "there must be something to compare"


def test_a_window_that_is_too_short_by_a_microsecond_is_found(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = answering.spec_of

    def wrong(workload: Any, query: str) -> Any:
        spec = right(workload, query)
        return replace(spec, size_us=spec.size_us - 1)

    monkeypatch.setattr(answering, "spec_of", wrong)
    settings = Settings(bins=1, schedule="none", join="auto", state_io=("arrow",), cuts=(2,))
    made = play(spark, tmp_path / "home", SEED, 12, settings=settings, epochs=2, shapes=["window"])
    assert made.of("mismatch")


def test_a_query_belongs_to_its_seed() -> None:
    texts = [make_query("q", f"{SEED}:{i}").sql for i in range(50)]
    assert texts == [make_query("q", f"{SEED}:{i}").sql for i in range(50)]
    assert len(set(texts)) == 50


def test_window_ends_are_aligned_from_the_first_row_to_the_last() -> None:
    assert aligned_ends([12, 27], 10, 5) == [15, 20, 25, 30, 35]
    assert covers([15, 20, 25, 30, 35], [12, 27], 10, 5) is None


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        pytest.param([], "no window", id="nothing was answered"),
        pytest.param([15, 25, 30, 35], "between two answers", id="a window is left out"),
        pytest.param([20, 25, 30, 35], "the first answer", id="the first comes late"),
        pytest.param([15, 20, 25, 30], "the last answer", id="the last is missing"),
    ],
)
def test_windows_that_are_not_answered_are_told(ends: list[int], told: str) -> None:
    assert told in (covers(ends, [12, 27], 10, 5) or "")


# A day that Spark has and Python has not.
_FAR = pa.scalar(2**31 - 1, pa.int32()).cast(pa.date32())


def _table(**columns: Any) -> pa.Table:
    return pa.table(columns)


@pytest.mark.parametrize(
    ("ours", "sparks", "told"),
    [
        pytest.param(_table(a=[1, 2]), _table(a=[2, 1]), None, id="rows in another order"),
        pytest.param(_table(a=[0.1 + 0.2]), _table(a=[0.3]), None, id="the last digit of a float"),
        pytest.param(_table(a=[float("nan"), -0.0]), _table(a=[0.0, float("nan")]), None, id="NaN and zeros"),
        pytest.param(_table(a=[1, 1]), _table(a=[1]), "extra", id="a row twice"),
        pytest.param(_table(a=[1.0]), _table(a=[1.001]), "missing", id="another float"),
        pytest.param(_table(a=[float("inf")]), _table(a=[1e308]), "missing", id="infinity is not large"),
        pytest.param(
            _table(a=[None, 1], b=[1, None]), _table(a=[1, None], b=[1, None]), "missing", id="NULL elsewhere"
        ),
        pytest.param(_table(a=[1]), _table(a=pa.array([1], pa.int32())), "is int64", id="another type"),
        pytest.param(_table(a=[1]), _table(b=[1]), "columns", id="another name"),
        pytest.param(_table(a=[_FAR]), _table(a=[_FAR]), None, id="days beyond Python's"),
        pytest.param(None, _table(a=[1]), "no results", id="nothing at all"),
        pytest.param(None, _table(a=pa.array([], pa.int64())), None, id="nothing of nothing"),
    ],
)
def test_what_tells_answers_apart(ours: pa.Table | None, sparks: pa.Table, told: str | None) -> None:
    found = difference(ours, sparks)
    assert found is None if told is None else told in (found or "")
