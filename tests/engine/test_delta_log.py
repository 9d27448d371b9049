"""The log of a Delta table, judged by a reader of Delta's that is not ours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.engine import delta_log
from headrace.engine.delta_log import DeltaLog
from headrace.engine.storage import LocalStorage
from headrace.errors import HeadraceError

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]})


def actions(folder: Path, epoch: int, first: bool, application: str = "app") -> list[dict[str, Any]]:
    """A commit of one file with the number of the epoch in it."""
    file = f"{application}-{epoch}.parquet"
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": pa.array([epoch], pa.int64())}), folder / file)
    start = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "0b64f1a0-0000-0000-0000-000000000000", "format": {"provider": "parquet", "options": {}},
                      "schemaString": SCHEMA, "partitionColumns": [], "configuration": {}, "createdTime": 1}},
    ]  # fmt: skip
    return [
        {"commitInfo": {"timestamp": 1, "operation": "STREAMING UPDATE", "engineInfo": "headrace"}},
        *(start if first else []),
        {"txn": {"appId": application, "version": epoch, "lastUpdated": 1}},
        {"add": {"path": file, "partitionValues": {}, "size": (folder / file).stat().st_size, "modificationTime": 1,
                 "dataChange": True}},
    ]  # fmt: skip


def write(folder: Path, epochs: range, application: str = "app") -> DeltaLog:
    log = DeltaLog(LocalStorage(str(folder)))
    log.refresh()
    for epoch in epochs:
        log.commit(actions(folder, epoch, log.metadata is None, application))
    return log


def numbers(folder: Path) -> list[int]:
    return sorted(pa.table(DeltaTable(str(folder)).to_pyarrow_table())["n"].to_pylist())


@pytest.fixture(autouse=True)
def checkpoint_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 4)


@pytest.mark.parametrize("versions", [1, 4, 5, 13])
def test_a_reader_sees_every_file_once(tmp_path: Path, versions: int) -> None:
    write(tmp_path / "t", range(versions))
    assert numbers(tmp_path / "t") == list(range(versions))
    assert DeltaTable(str(tmp_path / "t")).transaction_version("app") == versions - 1
    made = len(list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")))
    assert made == versions // 4


def test_a_log_that_is_opened_again_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "t", range(6))
    for version in range(4):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    log = write(tmp_path / "t", range(6, 10))
    assert (log.version, log.last_epoch("app"), log.last_epoch("other")) == (9, 9, -1)
    assert numbers(tmp_path / "t") == list(range(10))


def test_the_slower_of_two_writers_is_told(tmp_path: Path) -> None:
    slow = write(tmp_path / "t", range(1))
    write(tmp_path / "t", range(1), "other")
    with pytest.raises(FileExistsError):
        slow.commit(actions(tmp_path / "t", 1, False))
    slow.refresh()
    slow.commit(actions(tmp_path / "t", 1, False))
    assert (slow.last_epoch("app"), slow.last_epoch("other")) == (1, 0)
    assert numbers(tmp_path / "t") == [0, 0, 1]


def test_another_engine_may_write_to_the_table_and_then_compacts_it(tmp_path: Path) -> None:
    log = write(tmp_path / "t", range(3))
    write_deltalake(str(tmp_path / "t"), pa.table({"n": pa.array([100], pa.int64())}), mode="append")
    log.refresh()
    for epoch in range(3, 9):
        log.commit(actions(tmp_path / "t", epoch, False))
    assert numbers(tmp_path / "t") == [*range(9), 100]
    assert not list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    again = write(tmp_path / "t", range(9, 12))
    assert again.last_epoch("app") == 11
    assert numbers(tmp_path / "t") == [*range(12), 100]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"partition_by": ["n"]}, "is partitioned", id="a partitioned table"),
        pytest.param(
            {"configuration": {"delta.enableChangeDataFeed": "true"}},
            "features",
            id="a table that wants more of writers",
        ),
    ],
)
def test_a_table_beyond_us_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    write_deltalake(str(tmp_path / "t"), pa.table({"n": pa.array([1], pa.int64()), "m": [2]}), **options)
    with pytest.raises(HeadraceError, match=message):
        DeltaLog(LocalStorage(str(tmp_path / "t"))).refresh()


def test_a_version_that_is_missing_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "t", range(3))
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(HeadraceError, match="version 1 of the table is missing"):
        DeltaLog(LocalStorage(str(tmp_path / "t"))).refresh()
