"""What a soak judges by: slopes, and edits that are a function of their seed."""

from __future__ import annotations

import math
import random
from itertools import islice
from pathlib import Path

import pytest

from headrace.bench.soak import GUESTS, edits, pipeline_text, read_samples, write_samples
from headrace.bench.soak_judge import Series, judge
from headrace.bench.soak_look import Sample, folder_size, last_epoch
from headrace.language import load_pipeline

SERIES = Series("m", "a measure", slack=10.0)
HOUR = [10.0 * i for i in range(360)]


@pytest.mark.parametrize(
    ("values", "flat"),
    [
        pytest.param([100.0 for _ in HOUR], True, id="what stays is flat"),
        pytest.param([100 + 5 * random.Random(i).random() for i in range(360)], True, id="noise is flat"),
        pytest.param([100 + at / 60 for at in HOUR], False, id="one more a minute grows"),
        pytest.param([100 + 300 * (at < 500) for at in HOUR], True, id="the first ten minutes do not count"),
        pytest.param([100 + 5000 * (i % 50 == 7) for i in range(360)], True, id="peaks do not count"),
        pytest.param([math.nan for _ in HOUR], True, id="what could not be measured is not judged"),
        pytest.param([300 - at / 60 for at in HOUR], True, id="what shrinks does not grow"),
    ],
)
def test_a_series_is_flat_if_a_day_of_its_slope_is_less_than_half_its_level(values: list[float], flat: bool) -> None:
    assert judge(SERIES, list(zip(HOUR, values, strict=True))).flat is flat


def test_edits_add_drop_and_change_and_keep_to_their_bounds() -> None:
    made = list(islice(edits(1), 200))
    assert {said.split()[0] for said, _ in made} == {"add", "drop", "change"}
    assert all(GUESTS.start <= len(guests) <= GUESTS.stop for _, guests in made[GUESTS.start :])
    assert made == list(islice(edits(1), 200))


def test_every_pipeline_of_a_soak_can_be_read(tmp_path: Path) -> None:
    for number, (_, guests) in enumerate(islice(edits(2), 30)):
        file = tmp_path / f"{number}.yml"
        file.write_text(pipeline_text(guests))
        assert len(load_pipeline(file).queries) == 5 + len(guests)


def test_files_and_epochs_are_counted_as_they_come_and_go(tmp_path: Path) -> None:
    assert last_epoch(tmp_path) == -1
    (tmp_path / "manifests").mkdir()
    for name in ("3.json", "12.json", ".12.json.tmp"):
        (tmp_path / "manifests" / name).write_text("12345")
    assert last_epoch(tmp_path) == 12
    assert folder_size(tmp_path) == (3, 15)


def test_samples_survive_their_file(tmp_path: Path) -> None:
    samples = [
        Sample(10.5, 3, 0.9, 2, 100.0, 900.0, 80.0, 150.0, 90.0, 700.0, 6, 12, 300, 10, 200, 90, 1.5, 0.1, 40, 2.5)
    ]
    write_samples(samples, tmp_path / "samples.csv")
    assert read_samples(tmp_path / "samples.csv") == samples
