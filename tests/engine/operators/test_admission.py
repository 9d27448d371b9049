"""What edges keep of their rows follows from the decision alone, and answers are about what was kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from joins import ARROW, judged, play, sql
from world import SECOND, START, assert_same

from headrace.engine import Hooks, Manifest
from headrace.model import EpochDecision, threshold

# A Spark that hashes otherwise would shed other rows when it repeats an epoch. Then this fails, and a decision has to
# say which hash it means.
HASHES = [
    pytest.param("true", -3556563385944273995, id="BOOLEAN"),
    pytest.param("7Y", -2316761847303220474, id="TINYINT"),
    pytest.param("7S", -2316761847303220474, id="SMALLINT"),
    pytest.param("7", -2316761847303220474, id="INT"),
    pytest.param("7L", -1675555241495401651, id="BIGINT"),
    pytest.param("float(1.5)", -2310827558347141646, id="FLOAT"),
    pytest.param("double('NaN')", 6063304873224138714, id="NaN"),
    pytest.param("double('-0.0')", -2655039576142263734, id="minus zero"),
    pytest.param("1.5D", -824649074993054241, id="DOUBLE"),
    pytest.param("CAST(1.25 AS DECIMAL(10,2))", -5434264830323867544, id="DECIMAL"),
    pytest.param("CAST(1.25 AS DECIMAL(38,10))", -5985606367350293012, id="wide DECIMAL"),
    pytest.param("'Grüße'", -1518095457741526215, id="STRING"),
    pytest.param("X'00FF'", -8226498905724409142, id="BINARY"),
    pytest.param("DATE '2024-02-29'", -4194315947911788879, id="DATE"),
    pytest.param("TIMESTAMP '2024-02-29 12:00:00'", 8868180517111941349, id="TIMESTAMP"),
    pytest.param("TIMESTAMP_NTZ '2024-02-29 12:00:00'", 8868180517111941349, id="TIMESTAMP_NTZ"),
    pytest.param("INTERVAL '3' DAY", 8676719109639820311, id="INTERVAL"),
    pytest.param("array(1, 2)", 5755178134121041392, id="ARRAY"),
    pytest.param("named_struct('a', 1, 'b', 'x')", -7955685897834346159, id="STRUCT"),
    pytest.param("CAST(NULL AS INT)", -2864211556195259663, id="NULL"),
]


@pytest.mark.parametrize(("value", "wanted"), HASHES)
def test_spark_hashes_values_of_every_type_as_it_always_has(spark: Any, value: str, wanted: int) -> None:
    (row,) = spark.sql(f"SELECT xxhash64({value}, array(7L)[0]) AS h").collect()
    assert row.h == wanted


def kept(spark: Any, table: pa.Table, stream: str, edge: str, decision: EpochDecision) -> pa.Table:
    """The rows of an epoch that an edge keeps, as Spark tells from the decision alone."""
    admission = decision.admissions.get(stream)
    if admission is None or edge not in admission.keep:
        return table
    hashed = ", ".join(f"`{name}`" for name in admission.hashed)
    most = threshold(admission.keep[edge])
    rows = spark.createDataFrame(table).filter(f"xxhash64({hashed}, {admission.seed}L) < {most}L")
    return rows.toArrow().select(ARROW.names).cast(ARROW)


def test_joins_that_shed_answer_for_the_rows_that_were_kept(spark: Any, tmp_path: Path) -> None:
    rng, sides = np.random.default_rng(5), {"l": list[pa.Table](), "r": list[pa.Table]()}
    for epoch in range(6):
        for tables in sides.values():
            times = START + epoch * SECOND + np.sort(rng.integers(0, SECOND, 400))
            columns = {
                "ts": pa.array(times, pa.timestamp("us", "UTC")),
                "k": pa.array(rng.integers(0, 99, 400), pa.int32()),
                "s": ["w"] * 400,
                "x": pa.array(rng.random(400)),
                "n": pa.array(np.arange(400), pa.int64()),
            }
            tables.append(pa.table(columns, schema=ARROW))
    on, ranges = "l.k = r.k", {"short": (1, 1), "long": (3, 3)}
    decisions: list[EpochDecision] = []
    manifests: list[Manifest] = []
    spark.conf.set("spark.headrace.join.memory", "20k")
    try:
        queries = {name: sql("l.n, r.n AS m, l.x AS y", on, each) for name, each in ranges.items()}
        hooks = Hooks(on_decision=decisions.append, on_epoch=manifests.append)
        found = play(spark, tmp_path, sides["l"], sides["r"], queries, restart=4, hooks=hooks)
    finally:
        spark.conf.unset("spark.headrace.join.memory")
    edges = {edge for decision in decisions for each in decision.admissions.values() for edge in each.keep}
    assert len(edges) == 4, "both sides of both joins shed"
    assert {decision.epoch for decision in decisions} == set(range(6))
    stores = _stores(edges, manifests[-1], decisions)
    for name, each in ranges.items():
        rows = {
            side: [kept(spark, t, side, f"{side}>{stores[name, side]}", decisions[i]) for i, t in enumerate(tables)]
            for side, tables in sides.items()
        }
        assert_same(found[name], judged(rows["l"], rows["r"], "l.n, r.n, l.x", on, each, ""))
    # The smaller fraction sheds what the larger one does, and more: that is what the stream's ledger has.
    for side, tables in sides.items():
        lost = sum(
            400 - min(kept(spark, t, side, f"{side}>{stores[name, side]}", decisions[i]).num_rows for name in ranges)
            for i, t in enumerate(tables)
        )
        entry = manifests[-1].ledger[side]
        assert (entry.shed, entry.rows_in) == (lost, 6 * 400)
        assert entry.shed > 0


def _stores(edges: set[str], manifest: Manifest, decisions: list[EpochDecision]) -> dict[tuple[str, str], str]:
    """By query and side the store that an edge leads to: a query's two stores have one fraction in every epoch."""
    keep = {edge: [dict(_all(decision)).get(edge) for decision in decisions] for edge in edges}
    found: dict[tuple[str, str], str] = {}
    for name in ("short", "long"):
        ways = [decision.flows[name].way.keep for decision in decisions]
        for edge, parts in keep.items():
            if all((1.0 if part is None else part) == way for part, way in zip(parts, ways, strict=True)):
                side, _, store = edge.partition(">")
                found[name, side] = store
    assert len(found) == len(edges) == len(manifest.edges)
    return found


def _all(decision: EpochDecision) -> list[tuple[str, float]]:
    return [item for admission in decision.admissions.values() for item in admission.keep.items()]
