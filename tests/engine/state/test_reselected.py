"""What goes on when a stream's `select` has changed, and what is refused, by what the checkpoint's queries read."""

from __future__ import annotations

import pytest

from headrace.engine.state.checkpoint import QueryState
from headrace.engine.state.reselected import refuse_mixed_rows
from headrace.errors import StateError
from headrace.language import bind_selection, parse_schema
from headrace.model import Stream

SOURCE = parse_schema("ts TIMESTAMP, a STRING, b INT, items ARRAY<INT>")
BEFORE = "ts, CAST(a AS INT) AS n, b, b + 1 AS c WHERE b > 0"


def stream(select: str | None, name: str = "s") -> Stream:
    made = None if select is None else bind_selection(select, SOURCE, name)
    return Stream(name, SOURCE if made is None else tuple(column for column, _ in made.columns), "ts", select=made)


def told(before: str | None, now: str | None, **queries: QueryState) -> list[str]:
    notes: list[str] = []
    refuse_mixed_rows((stream(before),), (stream(now),), queries, (), notes.append)
    return notes


N = QueryState("SELECT SUM(n) AS n FROM s [WINDOW 1 min]")
ALL = QueryState("SELECT * FROM s")


@pytest.mark.parametrize(
    ("now", "queries", "says"),
    [
        pytest.param(BEFORE, {"q": ALL}, False, id="the same"),
        pytest.param(f"b AS d, {BEFORE}", {"q": N}, True, id="a column comes"),
        pytest.param("ts, CAST(a AS INT) AS n WHERE b > 0", {"q": N}, True, id="a column goes that nobody reads"),
        pytest.param("ts, CAST(a AS INT) AS n, a AS b WHERE b > 0", {"q": N}, True, id="another column changes"),
        pytest.param("ts, a AS n WHERE b > 9", {"q": QueryState(N.sql, ended=True)}, True, id="its reader is over"),
        pytest.param("ts, a AS n WHERE b > 9", {}, True, id="there is no query"),
    ],
)  # fmt: skip
def test_what_goes_on(now: str, queries: dict[str, QueryState], says: bool) -> None:
    assert bool(told(BEFORE, now, **queries)) is says


@pytest.mark.parametrize(
    ("now", "why"),
    [
        pytest.param("ts, CAST(a AS BIGINT) AS n, b, b + 1 AS c WHERE b > 0", "in column 'n'", id="another expression"),
        pytest.param("ts, b AS x WHERE b > 0", "in column 'n'", id="the column goes"),
        pytest.param("ts + INTERVAL 1 HOUR AS ts, CAST(a AS INT) AS n WHERE b > 0", "in column 'ts'", id="its time"),
        pytest.param("ts, CAST(a AS INT) AS n, b WHERE b > 1", "in WHERE or explode", id="which rows there are"),
        pytest.param("ts, CAST(a AS INT) AS n, explode(items) AS i WHERE b > 0", "in WHERE or explode", id="how many"),
        pytest.param(None, "in column 'n'", id="no select any more"),
    ],
)  # fmt: skip
def test_what_is_refused(now: str | None, why: str) -> None:
    with pytest.raises(StateError, match=f"select of stream 's' has changed {why}") as refused:
        told(BEFORE, now, q=N, other=QueryState("SELECT COUNT(*) AS c FROM s [WINDOW 1 min]", failed="x"))
    assert "'q'" in str(refused.value)
    assert "put it back; give a new column a name of its own; take these queries out" in str(refused.value)


def test_a_select_that_names_the_source_s_columns_changes_nothing() -> None:
    assert told(None, "*, b * 2 AS twice", q=QueryState("SELECT SUM(b) AS n FROM s [WINDOW 1 min]"))
    assert told("*, b * 2 AS twice", None, q=QueryState("SELECT SUM(b) AS n FROM s [WINDOW 1 min]"))
