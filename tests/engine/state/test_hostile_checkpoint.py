"""Whoever can write a checkpoint runs no code with it: its texts go through the guard that SQL of a file goes through.

Checksums are right everywhere: they keep accidents out, not people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.engine.operators.projection import projection
from headrace.engine.spark.session import tune
from headrace.engine.state.checkpoint import Checkpoint
from headrace.engine.state.storage import open_storage
from headrace.engine.state.workload import describe_workload, plan_workload, read_description
from headrace.errors import CorruptStateError
from headrace.kernels.absorb import Bounds
from headrace.language import bind_query, is_own_text, parse_schema
from headrace.model import Stream
from headrace.planning import Coverage, Workload, plan_query, share

R = Stream("r", parse_schema("ts TIMESTAMP, k STRING, x DOUBLE, v INT, `a b` INT, s STRUCT<f: INT>"), time="ts")
HOSTILE = "CAST(reflect('java.lang.Runtime', 'getRuntime') AS STRING)"


def plans(*queries: str) -> dict[str, Any]:
    return {f"q{i}": plan_query(bind_query(f"q{i}", sql, {"r": R})) for i, sql in enumerate(queries)}


def described(sql: str) -> dict[str, Any]:
    """What a checkpoint says of a workload of one query, as it is read from JSON."""
    found = json.loads(json.dumps(describe_workload(share(plans(sql)), [R])))
    assert isinstance(found, dict)
    return found


def planned(value: Mapping[str, Any], *queries: str) -> Workload:
    """The workload of other queries over a checkpoint so described, with all its panes there."""
    before = read_description(value)
    columns = {measure.column: None for kept in before.kept.values() for measure in kept.measures}
    coverage = {id_: Coverage(None, columns, (), 1.0) for id_ in before.kept}
    return plan_workload(plans(*queries), [R], before, coverage)


def texts(workload: Workload) -> str:
    return "\n".join(projection([R], tuple(workload.kept.values()), 2).select)


FINE = "SELECT k, x, SUM(v) AS n FROM r [WINDOW 1 min] WHERE v > 1 GROUP BY k, x"
COARSE = "SELECT k, SUM(v) AS n FROM r [WINDOW 1 min] WHERE v > 1 GROUP BY k"


def test_panes_that_are_there_are_shared_with_later_queries() -> None:
    workload = planned(described(FINE), COARSE)
    assert [supply.why for supply in workload.supplies.values()] == ["rolled up from finer keys that are there already"]
    assert "isnan" in texts(workload)


def _as_key(feed: dict[str, Any]) -> None:
    feed["keys"][1] = HOSTILE


def _as_number_key(feed: dict[str, Any]) -> None:
    feed["keys"][1] = f"CASE WHEN isnan({HOSTILE}) THEN DOUBLE('NaN') ELSE {HOSTILE} + DOUBLE(0) END"


def _behind_a_key(feed: dict[str, Any]) -> None:
    feed["keys"][1] = f"{feed['keys'][1]}, {HOSTILE}"


def _as_comment(feed: dict[str, Any]) -> None:
    feed["keys"][1] = f"r.x /* */ + {HOSTILE}"


def _as_variable(feed: dict[str, Any]) -> None:
    feed["keys"][1] = "concat('${env:HOME}', r.k)"


def _as_clock(feed: dict[str, Any]) -> None:
    feed["keys"][1] = "DATEDIFF('now', r.ts)"


def _as_table(feed: dict[str, Any]) -> None:
    feed["keys"][1] = "(SELECT MAX(value) FROM text.`/etc/passwd`)"


def _as_stream(feed: dict[str, Any]) -> None:
    feed["stream"] = f"r, {HOSTILE} AS y"


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(_as_key, id="as a key"),
        pytest.param(_as_number_key, id="as a key that looks like the planner's"),
        pytest.param(_behind_a_key, id="behind a key"),
        pytest.param(_as_comment, id="behind a comment"),
        pytest.param(_as_variable, id="as a variable of the environment"),
        pytest.param(_as_clock, id="as the wall clock"),
        pytest.param(_as_table, id="as a subquery"),
        pytest.param(_as_stream, id="as a stream"),
    ],
)
def test_sql_in_a_description_is_not_run(plant: Any) -> None:
    value = described(FINE)
    for kept in value["kept"].values():
        for feed in kept["feeds"]:
            plant(feed)
    workload = planned(value, COARSE)
    assert [supply.why for supply in workload.supplies.values()] == ["kept for itself"]
    assert "reflect" not in texts(workload)
    assert "isnan" not in texts(workload)


def test_a_hostile_filter_is_not_united_with_others() -> None:
    value = described("SELECT k, SUM(v) AS n FROM r [WINDOW 1 min] WHERE v = 1 GROUP BY k")
    for kept in value["kept"].values():
        kept["feeds"][0]["where"] = f"r.v = 1 AND {HOSTILE} IS NOT NULL"
    workload = planned(value, "SELECT k, SUM(v) AS n FROM r [WINDOW 1 min] WHERE v IN (1, 2) GROUP BY k")
    assert "reflect" not in texts(workload)


def test_a_demanded_synopsis_is_the_querys_own_whatever_the_description_says() -> None:
    value = described(COARSE)
    for kept in value["kept"].values():
        kept["feeds"][0]["keys"][0] = HOSTILE
    assert "reflect" not in texts(planned(value, COARSE))


@pytest.mark.parametrize(
    ("name", "columns", "time"),
    [
        pytest.param("r, reflect() AS x", [["ts", "TIMESTAMP"]], "ts", id="a stream's name"),
        pytest.param("r", [["ts` TIMESTAMP, `x", "TIMESTAMP"]], "ts` TIMESTAMP, `x", id="a column's name"),
        pytest.param("r", [["ts", "TIMESTAMP"]], "ts`), reflect(", id="the time"),
    ],
)
def test_names_in_a_description_are_names(name: str, columns: list[list[str]], time: str) -> None:
    value = {"streams": {name: {"columns": columns, "time": time, "lateness_us": 0}}, "kept": {}, "supplies": {}}
    with pytest.raises(CorruptStateError, match="that no pipeline can declare"):
        read_description(value)


def test_types_in_a_description_are_types() -> None:
    with pytest.raises(ValueError, match="after the type"):
        read_description(
            {
                "streams": {"r": {"columns": [["ts", "TIMESTAMP, x INT"]], "time": "ts", "lateness_us": 0}},
                "kept": {},
                "supplies": {},
            }
        )


def test_a_watermark_that_is_no_number_is_no_sql() -> None:
    made = projection([R], tuple(share(plans(COARSE)).kept.values()), 2)
    with pytest.raises(ValueError, match="format code 'd'"):
        made.bound([Bounds("0L), reflect('a', 'b'", 1)])  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "value"), [("bins", "1), reflect("), ("bins", 0), ("id", "x' OR '1' = '1")])
def test_identity_and_bins_are_checked(key: str, value: object, tmp_path: Path) -> None:
    checkpoint = Checkpoint(open_storage(str(tmp_path)))
    checkpoint.open(2, {"r": ""})
    checkpoint.close()
    found = json.loads((tmp_path / "headrace.json").read_text())
    (tmp_path / "headrace.json").write_text(json.dumps({**found, key: value}))
    with pytest.raises(CorruptStateError, match=r"headrace\.json cannot be read"):
        Checkpoint(open_storage(str(tmp_path))).read()


@pytest.mark.parametrize(
    "expression",
    [
        "k", "x", "`a b`", "s.f", "upper(k)", "v + 1", "v % 10 = 1 AND NOT k LIKE 'a%'", "CASE WHEN v > 1 THEN k END",
        "CAST(x AS BIGINT)", "TRY_CAST(k AS INT)", "date_trunc('HOUR', ts)", "k IN ('a', 'it''s', 'b\\\\c')", 
        "x BETWEEN 1 AND 2",
        "coalesce(k, '')", "-v", "v / 3.5", "1e3 * x", "ts > TIMESTAMP '2020-01-01'", "ts + INTERVAL '1' DAY > ts",
        "substring(k, 1, 2)", "k IS NULL", "k IS NOT NULL", "k NOT LIKE '%a%'", "concat(k, 'ü')", "v = 1 OR v = 2",
        "EXTRACT(HOUR FROM ts)", "pmod(xxhash64(k), 10)", "split(k, ',')[0]",
    ],
)  # fmt: skip
def test_what_a_query_wrote_is_known_again(expression: str) -> None:
    plan = plans(f"SELECT {expression} AS g, COUNT(*) FROM r [WINDOW 1 min] GROUP BY {expression}")["q0"]
    (text,) = (plan.query.root.input.columns[0].sql,)
    assert is_own_text(text, (R,)), text


def test_a_given_session_replaces_no_variables(spark: Any) -> None:
    """A value planted where the driver's properties are stays there, whatever the session was set to before."""
    spark.sparkContext._jvm.java.lang.System.setProperty("headrace.planted", "hunter2")
    spark.conf.set("spark.sql.variable.substitute", "true")
    text = "'${system:headrace.planted}' AS x"
    assert spark.range(1).selectExpr(text).first().x == "hunter2"
    tune(spark)
    assert spark.range(1).selectExpr(text).first().x == "${system:headrace.planted}"
