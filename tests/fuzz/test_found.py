"""What the fuzzer has found, each query small and by hand, all in one pipeline, judged by Spark's batch SQL."""

from __future__ import annotations

from typing import Any

import pytest

from fuzz import play as playing
from fuzz.play import Outcome, Settings, play
from fuzz.queries import Query

# id: the query, and the judge's text
FOUND: dict[str, tuple[str, str]] = {
    "maps are results of joins": (
        "SELECT a.n, o.n AS m, a.mp, o.mp AS mq FROM l AS a [RANGE 1 s] LEFT JOIN r AS o [RANGE 6 s] ON a.ti = o.ti",
        "SELECT a.n, o.n AS m, a.mp, o.mp AS mq FROM l AS a LEFT JOIN r AS o ON a.ti = o.ti AND {near}",
    ),
    "constants beside a row window": (
        "SELECT n, round(MAX(d), -2) AS a, MAX(at) + INTERVAL '1' HOUR AS b FROM l [PARTITION BY k ROWS 1]",
        "SELECT n, round(d, -2) AS a, at + INTERVAL '1' HOUR AS b FROM l",
    ),
}
# How far apart rows of a join with the ranges 1 s and 6 s may be.
NEAR = "unix_micros(o._t) - unix_micros(a._t) BETWEEN -6000000 AND 1000000"


@pytest.fixture(scope="module")
def outcomes(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    queries = [
        Query(f"q{i}", "found", sql, judge.replace("{near}", NEAR), streams=("l", "r"))
        for i, (sql, judge) in enumerate(FOUND.values())
    ]
    settings = Settings(bins=2, schedule="none", join="auto", state_io=("arrow",), cuts=(2,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(playing, "make_query", lambda name, seed, shapes: queries[int(name[1:])])
        made = play(spark, tmp_path_factory.mktemp("found"), "found", len(queries), settings=settings, epochs=2)
    return {name: made.named(f"q{i}") for i, name in enumerate(FOUND)}


@pytest.mark.parametrize("name", FOUND)
def test_found(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.verdict == "equal", outcome.detail
    assert outcome.rows > 0
