"""The synthetic source makes the same rows everywhere, with the bursts, skew and disorder asked for."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from headrace.engine.sources.synthetic import _ROWS_PER_TASK, synthetic_source
from headrace.kernels.synthetic import make_rows
from headrace.language import parse_schema
from headrace.language.pipeline.synthetic import SYNTHETIC_SCHEMA

SECOND = 1_000_000
START = 1_704_067_200 * SECOND
ALL = {"rate": "137", "keys": "17", "skew": "1.5", "seed": "9", "burst": "4", "disorder": "3 seconds"}


def times(batch: pa.RecordBatch) -> np.ndarray:
    return batch["ts"].cast(pa.int64()).to_numpy()


@given(st.integers(0, 5000), st.lists(st.integers(0, 300), min_size=1, max_size=5))
@settings(max_examples=30)
def test_any_split_of_a_range_gives_the_same_rows(first: int, sizes: list[int]):
    edges = np.cumsum([first, *sizes]).tolist()
    parts = [make_rows(ALL, a, b) for a, b in pairwise(edges)]
    assert (
        pa.Table.from_batches(parts)
        .combine_chunks()
        .equals(pa.Table.from_batches([make_rows(ALL, edges[0], edges[-1])]))
    )


def test_rows_are_the_same_in_every_process_and_version():
    assert make_rows(ALL, 1000, 1002).to_pylist() == make_rows(ALL, 1000, 1002).to_pylist()
    first = make_rows({"seed": "1"}, 0, 1).to_pylist()[0]
    assert {k: v for k, v in first.items() if k != "ts"} == {
        "key": "key0005",
        "value": 808.855,
        "amount": 597,
        "seq": 0,
    }


@pytest.mark.parametrize("other", [{"seed": "1"}, {"seed": "-3"}])
def test_another_seed_makes_other_rows(other: dict[str, str]):
    one, two = make_rows({}, 0, 100), make_rows(other, 0, 100)
    assert not one["value"].equals(two["value"])
    assert one["seq"].equals(two["seq"])
    assert one["ts"].equals(two["ts"]), "time belongs to the rate, not to chance"


def test_columns_are_those_the_language_knows():
    columns = parse_schema(SYNTHETIC_SCHEMA)
    assert make_rows({}, 0, 1).schema.names == [column.name for column in columns]
    assert synthetic_source()({}).schema() == SYNTHETIC_SCHEMA
    arrow = {"TIMESTAMP": pa.timestamp("us", "UTC"), "STRING": pa.string(), "DOUBLE": pa.float64(),
             "INT": pa.int32(), "BIGINT": pa.int64()}  # fmt: skip
    assert make_rows({}, 0, 1).schema.types == [arrow[str(column.type)] for column in columns]


def test_no_rows_are_an_empty_batch():
    assert make_rows(ALL, 5, 5).num_rows == 0
    assert make_rows(ALL, 5, 5).schema == make_rows(ALL, 5, 6).schema


def test_the_rate_is_in_rows_per_second_of_event_time():
    found = times(make_rows({"rate": "50"}, 0, 500))
    assert found[0] == START
    assert Counter((found - START) // SECOND) == dict.fromkeys(range(10), 50)
    assert (np.diff(found) > 0).all()


def test_a_start_moves_all_times():
    found = times(make_rows({"rate": "50", "start": "2020-05-01T00:00:00Z"}, 0, 100))
    assert (found - times(make_rows({"rate": "50"}, 0, 100)) == 1_588_291_200 * SECOND - START).all()


def test_a_burst_fills_the_first_second_of_every_ten():
    #   rows per second   500 | 100 100 100 100 100 100 100 100 100 | 500 | 100 ...
    found = times(make_rows({"rate": "100", "burst": "5"}, 0, 2 * 1400))
    per_second = Counter((found - START) // SECOND)
    assert per_second == {second: 500 if second % 10 == 0 else 100 for second in range(20)}
    assert (np.diff(found) > 0).all()


def test_disorder_sets_rows_back_by_less_than_it_says():
    calm, found = (
        times(make_rows({"rate": "100"}, 0, 5000)),
        times(make_rows({"rate": "100", "disorder": "2 s"}, 0, 5000)),
    )
    back = calm - found
    assert back.min() >= 0
    assert 1.9 * SECOND < back.max() < 2 * SECOND
    assert abs(back.mean() - SECOND) < 0.05 * SECOND
    assert (np.diff(found) < 0).any(), "it is a disorder"


def test_without_skew_all_keys_are_as_heavy():
    counts = Counter(make_rows({"keys": "10"}, 0, 20_000)["key"].to_pylist())
    assert set(counts) == {f"key{n:04d}" for n in range(10)}
    assert max(counts.values()) < 1.1 * min(counts.values())


def test_a_skew_of_three_gives_one_percent_of_the_keys_a_third_of_the_rows():
    counts = Counter(make_rows({"keys": "1000", "skew": "3"}, 0, 20_000)["key"].to_pylist())
    share = sum(counts[f"key{n:04d}"] for n in range(10)) / 20_000
    assert share == pytest.approx(0.01**0.25, abs=0.02)
    assert counts.most_common(1)[0][0] == "key0000"


def test_keys_stay_within_their_number():
    for keys in (1, 3, 200_000):
        found = make_rows({"keys": str(keys), "skew": "0.5"}, 0, 2000)["key"].to_pylist()
        assert all(0 <= int(key.removeprefix("key")) < keys for key in found)


def test_values_and_amounts_lie_in_their_ranges():
    batch = make_rows({}, 0, 20_000)
    value, amount = batch["value"].to_numpy(), batch["amount"].to_numpy()
    assert value.min() >= 0
    assert value.max() <= 1000
    assert abs(value.mean() - 500) < 10
    assert (amount.min(), amount.max()) == (0, 1499)
    assert abs(np.corrcoef(value, amount)[0, 1]) < 0.03, "columns do not follow each other"
    assert batch["seq"].to_pylist() == list(range(20_000))


def reader_of(options: dict[str, str]) -> Any:
    return synthetic_source()(options).streamReader(StructType())


# The reader ----------------------------------------------------------------------------------------------------------


def offsets(options: dict[str, str], epochs: int, available_now: bool = False) -> list[int]:
    reader = reader_of(options)
    at, found = reader.initialOffset(), []
    if available_now:
        reader.prepareForTriggerAvailableNow()
    for _ in range(epochs):
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
        found.append(at["row"])
    return found


@pytest.mark.parametrize(
    ("options", "available_now", "wanted"),
    [
        pytest.param({"rate": "70"}, False, [70, 140, 210, 280], id="an epoch is a second of rows"),
        pytest.param({"rate": "70", "epoch": "9"}, False, [9, 18, 27, 36], id="or as many as asked for"),
        pytest.param({"epoch": "9", "rows": "20"}, False, [9, 18, 20, 20], id="the stream ends after its rows"),
        pytest.param({"epoch": "9"}, True, [9, 9, 9, 9], id="what is available now of an endless stream is an epoch"),
        pytest.param({"epoch": "9", "rows": "20"}, True, [9, 18, 20, 20], id="and of a finite one all of it"),
    ],
)
def test_epochs(options: dict[str, str], available_now: bool, wanted: list[int]):
    assert offsets(options, 4, available_now) == wanted


def test_partitions_cover_an_epoch_once():
    reader = reader_of({})
    last = 3 * _ROWS_PER_TASK - 5
    parts = reader.partitions({"row": 7}, {"row": last})
    assert [part.first for part in parts] == [7, *(part.end for part in parts[:-1])]
    assert parts[-1].end == last
    assert all(0 < part.end - part.first <= _ROWS_PER_TASK for part in parts)
    assert list(reader.partitions({"row": 7}, {"row": 7})) == []


def test_a_partition_is_read_as_its_rows():
    reader = reader_of(ALL)
    (part,) = reader.partitions({"row": 7}, {"row": 12})
    (batch,) = reader.read(part)
    assert batch.equals(make_rows(ALL, 7, 12))
