"""Tables as Spark reads them: what a snapshot holds, and a sentence for each way in which a table is not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.engine.sources.tables import Tables
from headrace.engine.state.storage import LocalStorage
from headrace.errors import CorruptStateError, EngineError
from headrace.language import parse_schema
from headrace.model import CATALOG, Source, Table

ROWS = [("a", 1), ("b", None), (None, 3), ("b", None)]
SCHEMA = "host STRING, zone INT"


@pytest.fixture(scope="module")
def places(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Source]]:
    home = tmp_path_factory.mktemp("tables")
    hosts, zones = zip(*ROWS, strict=True)
    columns = {"zone": pa.array(zones, pa.int32()), "Host": list(hosts), "more": [1.0] * len(ROWS)}
    pq.write_table(pa.table(columns), home / "hosts.parquet")
    lines = [",".join("" if value is None else str(value) for value in row) for row in ROWS]
    (home / "hosts.csv").write_text("\n".join(["host,zone", *lines]) + "\n")
    texts = [json.dumps({"host": host, "zone": zone, "more": {}}) for host, zone in ROWS]
    (home / "hosts.json").write_text("\n".join(texts) + "\n")
    (home / "words.csv").write_text("host,zone\na,one\n")
    (home / "named.csv").write_text("name,zone\na,1\n")
    (home / "named.json").write_text('{"name": "a", "zone": 1}\n')
    spark.read.parquet(str(home / "hosts.parquet")).createOrReplaceTempView("hosts_view")
    header = (("header", "true"),)
    yield {
        "parquet": Source("parquet", str(home / "hosts.parquet")),
        "csv": Source("csv", str(home / "hosts.csv"), header),
        "json": Source("json", str(home / "hosts.json")),
        "view": Source(CATALOG, "hosts_view"),
        "nowhere": Source("parquet", str(home / "none")),
        "no table": Source(CATALOG, "none.hosts"),
        "words": Source("csv", str(home / "words.csv"), header),
        "renamed csv": Source("csv", str(home / "named.csv"), header),
        "renamed json": Source("json", str(home / "named.json")),
    }
    spark.catalog.dropTempView("hosts_view")


def tables(spark: Any, home: Path, source: Source, schema: str = SCHEMA, **rest: Any) -> Tables:
    return Tables(spark, LocalStorage(str(home)), [Table("hosts", parse_schema(schema), source, **rest)])


@pytest.mark.parametrize("name", ["parquet", "csv", "json", "view"])
def test_a_snapshot_has_the_rows_of_the_table(spark: Any, places: dict[str, Source], tmp_path: Path, name: str):
    known = tables(spark, tmp_path, places[name])
    snapshot = known.take("hosts", 7, 123, "because")
    assert (snapshot.rows, snapshot.read_us, snapshot.reason) == (len(ROWS), 123, "because")
    found = [tuple(row) for row in known.look("hosts", snapshot).collect()]
    assert sorted(found, key=repr) == sorted(ROWS, key=repr)
    known.close()
    file = next((tmp_path / "tables" / "hosts" / snapshot.folder).glob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptStateError, match="the snapshot of table 'hosts' had"):
        known.look("hosts", snapshot)


@pytest.mark.parametrize(
    ("name", "schema", "why"),
    [
        pytest.param("nowhere", SCHEMA, "table 'hosts' cannot be read: .*does not exist", id="files are not there"),
        pytest.param("no table", SCHEMA, "table 'hosts' cannot be read: .*none", id="a table is not there"),
        pytest.param("parquet", "hst STRING", "has no column 'hst'; did you mean 'Host'", id="a column is not there"),
        pytest.param("parquet", "zone STRING", "column 'zone' of table 'hosts' is INT, and was declared STRING",
                     id="a column is of another type"),
        pytest.param("renamed csv", SCHEMA, "table 'hosts' cannot be read: .*host", id="a column of CSV is renamed"),
        pytest.param("renamed json", SCHEMA, "has no column 'host'", id="a field of JSON is renamed"),
        pytest.param("words", SCHEMA, "table 'hosts' cannot be read: .*one", id="a value is none of its type"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_said_and_leaves_nothing(
    spark: Any, places: dict[str, Source], tmp_path: Path, name: str, schema: str, why: str
):
    with pytest.raises(EngineError, match=why):
        tables(spark, tmp_path, places[name], schema).take("hosts", 0, 0, "")
    assert not list((tmp_path / "tables" / "hosts").glob("*"))


def test_a_copy_beyond_the_limit_is_refused(spark: Any, places: dict[str, Source], tmp_path: Path):
    with pytest.raises(EngineError, match="more than its limit of 10 B; raise its limit:"):
        tables(spark, tmp_path, places["csv"], limit_bytes=10).take("hosts", 0, 0, "")
    assert not list((tmp_path / "tables" / "hosts").glob("*"))
