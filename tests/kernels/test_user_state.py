"""User-defined state: what a function gets, what it may return, and what becomes of another version of its state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace import step
from headrace.engine.operators.functions import load_function, packed
from headrace.engine.operators.keyed import KeyedOperator
from headrace.engine.operators.port import Checked
from headrace.errors import EngineError, QueryFailure, SpecError, StateError
from headrace.kernels.keyed import MiniWork, Turn
from headrace.kernels.steps import StepKernel, StepState
from headrace.language import bind_query, load_pipeline, parse_schema
from headrace.model import Step, Stream
from headrace.planning import StepPlan, plan_query
from headrace.policies import FluxSettings, begin

STREAM = Stream("r", parse_schema("ts TIMESTAMP, k STRING, v INT"), "ts")
SQL = "SELECT k, ts, v * 2 AS w FROM r [PARTITION BY k]"


def count(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """How many rows each key has had, and the sum of their values, on every call."""
    frame = pl.concat(
        [pl.from_arrow(state), pl.from_arrow(rows).select("k", n=1, s=pl.col("w"))], how="vertical_relaxed"
    )
    grown = frame.group_by("k", maintain_order=True).agg(pl.col("n").sum(), pl.col("s").sum()).to_arrow()
    return grown, grown


COUNT = step(count, state="k STRING, n BIGINT, s BIGINT", results="k STRING, n BIGINT, s BIGINT")


def planned(sql: str = SQL, **changes: Any) -> StepPlan:
    made = plan_query(bind_query("q", sql, {"r": STREAM}, step=replace(COUNT.spec, **changes)))
    assert isinstance(made, StepPlan)
    return made


def operator() -> KeyedOperator:
    return KeyedOperator(None, None, None, None, FluxSettings())  # type: ignore[arg-type]


def kernel(function: Any = count, **changes: Any) -> StepKernel:
    made, plan = operator(), planned(**changes)
    made.check(Checked({"q": plan}, {}, {"q": function}))
    kernel = made._query("q", plan).kernel
    assert isinstance(kernel, StepKernel)
    return kernel


def rows(*values: tuple[int, int, str, int]) -> pl.DataFrame:
    """Rows (mini-partition, time, key, value) as the store keeps them."""
    return pl.DataFrame(
        {
            "p": [time for _, time, _, _ in values],
            "c0": [key for _, _, key, _ in values],
            "c1": pl.Series([time for _, time, _, _ in values], dtype=pl.Int64).cast(pl.Datetime("us", "UTC")),
            "c2": [value for *_, value in values],
            "m": [mini for mini, *_ in values],
        },
        schema={"p": pl.Int64, "c0": pl.String, "c1": pl.Datetime("us", "UTC"), "c2": pl.Int32, "m": pl.Int32},
    )


def turn(made: StepKernel, state: StepState, new: pl.DataFrame, final_us: int, done_us: int = -1) -> Any:
    return made.turn(Turn(state, new, {m: MiniWork(m, done_us, -1, None) for m in range(4)}, final_us))


def test_a_function_is_called_once_per_mini_partition_with_its_final_rows_in_order() -> None:
    calls: list[tuple[int, list[tuple[str, int]]]] = []

    def spy(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        calls.append((state.num_rows, list(zip(rows["k"].to_pylist(), rows["w"].to_pylist(), strict=True))))
        return count(state, rows)

    made = kernel(spy)
    # Not pickled: the closure is to see the calls.
    from headrace.kernels import steps as user_state

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_state, "_unpacked", lambda code: spy)
        first = turn(made, made.empty(), rows((1, 30, "a", 3), (1, 10, "b", 1), (2, 20, "c", 2), (1, 99, "a", 9)), 50)
        assert calls == [(0, [("b", 1), ("a", 3)]), (0, [("c", 2)])]
        assert first.rows == {1: 2, 2: 1}
        assert first.touched == {1, 2}
        assert first.state.rows.height == 1, "the row at 99 waits"
        calls.clear()
        second = turn(made, first.state, rows((1, 60, "b", 5)), 100, done_us=50)
    assert calls == [(2, [("b", 5), ("a", 9)])]
    assert sorted(second.results.to_pylist(), key=str) == [
        {"k": "a", "n": 2, "s": 12}, {"k": "b", "n": 2, "s": 6}]  # fmt: skip
    assert second.state.tables[2].num_rows == 1, "what has no rows keeps its state"


def test_state_survives_a_snapshot() -> None:
    made = kernel()
    first = turn(made, made.empty(), rows((1, 30, "a", 3), (2, 20, "c", 2), (2, 99, "c", 1)), 50)
    parts = list(made.parts(first.state, frozenset({1, 2})))
    assert sorted((name, mini) for name, mini, _ in parts) == [("", 2), (".state1", 1), (".state1", 2)]
    again = made.loaded(parts)
    assert again.tables[1].equals(first.state.tables[1])
    assert again.rows.equals(first.state.rows)
    assert made.only(again, frozenset({1})).tables.keys() == {1}


def test_columns_of_state_may_have_any_name() -> None:
    names = "p STRING, m BIGINT, c0 BIGINT"
    made = kernel(state=parse_schema(names), results=parse_schema("k STRING"))
    table = pa.table({"p": ["a", None], "m": pa.array([1, 2], pa.int64()), "c0": pa.array([3, 4], pa.int64())})
    parts = list(made.parts(StepState({3: table}, made.no_rows()), frozenset({3})))
    assert made.loaded(parts).tables[3].equals(table)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        pytest.param(lambda s, r: s, "returned Table, not \\(state, results\\)", id="one table"),
        pytest.param(lambda s, r: (s, None), "returned NoneType as its results, not an Arrow table", id="no results"),
        pytest.param(
            lambda s, r: (s.select(["k"]), s), "state with the columns k; declared are k, n, s", id="too few columns"
        ),
        pytest.param(lambda s, r: (s, r), "results with the columns k, ts, w; declared are k, n, s", id="others"),
    ],
)  # fmt: skip
def test_what_a_function_returns_is_checked(returned: Any, message: str) -> None:
    made = kernel(returned)
    with pytest.raises(TypeError, match=message):
        turn(made, made.empty(), rows((1, 1, "a", 1)), 50)


def widen(state: pa.Table, version: int) -> pa.Table:
    assert version == 1
    return state.append_column("s", pa.array([0] * state.num_rows, pa.int64()))


def test_an_older_state_is_migrated() -> None:
    old = kernel(state=parse_schema("k STRING, n BIGINT"), results=parse_schema("k STRING"))
    table = pa.table({"k": ["a"], "n": pa.array([7], pa.int64())})
    parts = list(old.parts(StepState({3: table}, old.no_rows()), frozenset({3})))
    new = replace(kernel(version=2), migration=packed(widen))
    assert new.loaded(parts).tables[3].to_pylist() == [{"k": "a", "n": 7, "s": 0}]
    with pytest.raises(EngineError, match="has version 1, its function wants 2"):
        kernel(version=2).loaded(parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"version": 2}, "has state of version 1 .* wants version 2", id="a version without a migration"),
        pytest.param(
            {"state": parse_schema("k STRING, n INT, s BIGINT")},
            "with the columns k STRING, n BIGINT, s BIGINT, and its function now declares k STRING, n INT",
            id="other columns without a version",
        ),
    ],
)
def test_another_state_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    known = replace(begin(1, 64), version=1, schema="k STRING, n BIGINT, s BIGINT")
    operator().check(Checked({"q": planned()}, {"q": known}, {"q": count}))
    with pytest.raises(StateError, match=f"query 'q' .*{message}"):
        operator().check(Checked({"q": planned(**changes)}, {"q": known}, {"q": count}))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("no_such_module:f", "cannot be loaded: No module named", id="no module"),
        pytest.param("math:no_such", "cannot be loaded: module 'math' has no attribute", id="no such name"),
        pytest.param("math:pi", "is not a function", id="something else"),
    ],
)
def test_functions_that_cannot_be_loaded_are_refused(name: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_function(name, "q")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        pytest.param("SELECT k FROM r [PARTITION BY k ROWS 5]", "leave ROWS out", id="rows and a function"),
        pytest.param("SELECT k FROM r [WINDOW 1 min]", "a function needs keys", id="a window and a function"),
        pytest.param("SELECT k, SUM(v) FROM r [PARTITION BY k]", "rows, not aggregates", id="aggregates"),
    ],
)
def test_sql_that_does_not_go_with_a_function(sql: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        bind_query("q", sql, {"r": STREAM}, step=COUNT.spec)


def test_partition_by_alone_needs_a_function() -> None:
    with pytest.raises(SpecError, match="PARTITION BY needs ROWS, or a function"):
        bind_query("q", SQL, {"r": STREAM})


def test_a_pipeline_file_names_the_function(tmp_path: Path) -> None:
    text = """
name: p
streams:
  r: {source: {format: parquet, path: in}, schema: "ts TIMESTAMP, k STRING, v INT", time: ts}
queries:
  q:
    sql: SELECT k, ts, v * 2 AS w FROM r [PARTITION BY k]
    function: my.module:count
    state: k STRING, n BIGINT
    results: k STRING
    version: 3
"""
    (tmp_path / "p.yml").write_text(text)
    (query,) = load_pipeline(tmp_path / "p.yml").queries
    assert isinstance(query.root, Step)
    assert (query.root.step.function, query.root.step.version) == ("my.module:count", 3)
    assert [column.name for column in query.root.step.state] == ["k", "n"]
    (tmp_path / "p.yml").write_text(text.replace("    results: k STRING\n", ""))
    with pytest.raises(SpecError, match="query 'q' has function, and no results"):
        load_pipeline(tmp_path / "p.yml")


@pytest.mark.parametrize("kind", [ConnectionError, EOFError, StateError])
def test_whatever_a_function_raises_is_its_querys_failure(kind: type[Exception]) -> None:
    def away(state: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        raise kind("nobody there")

    made = kernel(away)
    with pytest.raises(QueryFailure, match=f"{kind.__name__}: nobody there"):
        turn(made, made.empty(), rows((0, 1, "a", 1)), final_us=10)
