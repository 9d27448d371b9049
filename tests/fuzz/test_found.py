"""What the fuzzer has found, each query small and by hand, all in one pipeline, judged by Spark's batch SQL."""

from __future__ import annotations

from typing import Any

import pytest
from world import SECOND

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
# id: select list, size and slide in seconds; all by one key, so that they are scheduled together
WINDOWS: dict[str, tuple[str, int, int]] = {
    "values in longer panes than their group's": ("COUNT(DISTINCT i) AS a", 12, 4),
    "what makes the group's panes short": ("COUNT(*) AS a", 9, 3),
}
# Queries of types that only Spark can tell, which a row window cannot keep: they fail alone, the others go on.
REFUSED: dict[str, tuple[str, str]] = {
    "a map that only Spark knows to be one": (
        "SELECT n, COUNT(transform_values(map('a', 1), (x, y) -> y + 1)) AS a FROM l [PARTITION BY k ROWS 1]",
        "SELECT n, 1L AS a FROM l",
    ),
}
# How far apart rows of a join with the ranges 1 s and 6 s may be.
NEAR = "unix_micros(o._t) - unix_micros(a._t) BETWEEN -6000000 AND 1000000"


def window_query(name: str, select: str, size_s: int, slide_s: int) -> Query:
    ends = (
        f"(SELECT timestamp_micros(e - {size_s}000000) AS window_start, timestamp_micros(e) AS window_end FROM @ENDS@)"
    )
    return Query(
        name,
        "found",
        f"SELECT k, {select} FROM l [WINDOW {size_s} s SLIDE {slide_s} s] GROUP BY k",
        f"SELECT window_start, window_end, k, {select} FROM {ends} JOIN l ON _t >= window_start AND _t < window_end "
        "GROUP BY window_start, window_end, k",
        (size_s * SECOND, slide_s * SECOND),
    )


@pytest.fixture(scope="module")
def outcomes(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    queries = [
        Query(f"q{i}", "found", sql, judge.replace("{near}", NEAR), streams=("l", "r"))
        for i, (sql, judge) in enumerate([*FOUND.values(), *REFUSED.values()])
    ]
    queries += [window_query(f"q{len(queries) + i}", *window) for i, window in enumerate(WINDOWS.values())]
    settings = Settings(bins=2, schedule="aggressive", join="auto", state_io=("arrow",), cuts=(2,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(playing, "make_query", lambda name, seed, shapes: queries[int(name[1:])])
        made = play(spark, tmp_path_factory.mktemp("found"), "found", len(queries), settings=settings, epochs=2)
    return {name: made.named(f"q{i}") for i, name in enumerate([*FOUND, *REFUSED, *WINDOWS])}


@pytest.mark.parametrize("name", [*FOUND, *WINDOWS])
def test_found(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    assert outcome.verdict == "equal", outcome.detail
    assert outcome.rows > 0


@pytest.mark.parametrize("name", REFUSED)
def test_refused_alone(outcomes: dict[str, Outcome], name: str) -> None:
    assert outcomes[name].verdict == "refused", outcomes[name].detail
