"""Files of links, as tasks read them: whole and as they were sent, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.errors import CorruptStateError
from headrace.kernels.link_files import ReadLinkFiles, SealLinkFiles, Sent

NAME = "epoch-000000001-000.parquet"
TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("ts", TIME), ("k", pa.string())])
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def written(folder: Path, table: pa.Table) -> Sent:
    pq.write_table(table, folder / NAME)
    ((_, file),) = SealLinkFiles(((str(folder), NAME),))([0])
    return Sent(str(folder), file)


def rows(sent: Sent) -> list[dict[str, object]]:
    order = ReadLinkFiles((sent,), SCHEMA, "ts")
    numbers = pa.record_batch({"id": pa.array([0])})
    return pa.Table.from_batches(order(iter([numbers])), SCHEMA).to_pylist()


def test_rows_are_read_by_the_names_of_their_columns(tmp_path: Path) -> None:
    table = pa.table({"k": ["a", None], "ts": pa.array([NOON, NOON], TIME)})
    assert rows(written(tmp_path, table)) == [{"ts": NOON, "k": "a"}, {"ts": NOON, "k": None}]


def test_rows_without_a_time_have_that_of_what_was_sent(tmp_path: Path) -> None:
    sent = written(tmp_path, pa.table({"k": ["a", "b"]}))
    dated = Sent(sent.folder, sent.file, int(NOON.timestamp() * 1e6))
    assert rows(dated) == [{"ts": NOON, "k": "a"}, {"ts": NOON, "k": "b"}]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        pytest.param(
            lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "is altered or truncated", id="a byte"
        ),
        pytest.param(lambda data: data[:-1], "is altered or truncated", id="a file that is cut short"),
        pytest.param(lambda data: data + b"x", "is altered or truncated", id="a file that is longer"),
        pytest.param(None, "is missing", id="no file"),
    ],
)
def test_a_file_that_is_not_as_it_was_sent_is_refused_by_name(
    fault: Callable[[bytes], bytes] | None, said: str, tmp_path: Path
) -> None:
    sent = written(tmp_path, pa.table({"ts": pa.array([NOON], TIME), "k": ["a"]}))
    file = tmp_path / NAME
    file.unlink() if fault is None else file.write_bytes(fault(file.read_bytes()))
    with pytest.raises(CorruptStateError, match=f"{NAME} {said}"):
        rows(sent)


def test_a_file_with_other_columns_is_refused_by_name(tmp_path: Path) -> None:
    sent = written(tmp_path, pa.table({"ts": pa.array([NOON], TIME), "key": ["a"]}))
    with pytest.raises(CorruptStateError, match=f"{NAME} has the columns ts, key, not ts, k"):
        rows(sent)
