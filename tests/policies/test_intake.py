"""How many rows, or bytes of files, an epoch takes: as many as fill its time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model import Intake
from headrace.policies import Taken, plan_intake
from headrace.policies.intake import LEAST, LEAST_BYTES, MOST, MOST_BYTES

NOW = Intake(100_000, "before")


def full(rows: int, seconds: float) -> Taken:
    return Taken(rows, seconds, True)


@pytest.mark.parametrize(
    ("epochs", "target_s", "rows"),
    [
        pytest.param([], 1.0, 100_000, id="nothing is known: it stays"),
        pytest.param([full(100_000, 0.1)] * 2, 1.0, 100_000, id="two epochs are too few"),
        pytest.param([full(100_000, 0.1)] * 3, 1.0, 800_000, id="fast epochs take more, to eight tenths of the time"),
        pytest.param([full(100_000, 4.0)] * 3, 1.0, 20_000, id="slow epochs take fewer"),
        pytest.param([full(100_000, 0.6)] * 3, 1.0, 100_000, id="less than twice as many is not worth it"),
        pytest.param([full(100_000, 0.1)] * 2 + [Taken(70_000, 0.1, False)], 1.0, 100_000,
                     id="an epoch that took all there was has hit no limit"),
        pytest.param([full(100_000, 20.0), full(100_000, 0.5), full(100_000, 0.6)], 1.0, 100_000,
                     id="one slow epoch among fast ones does not count"),
        pytest.param([full(100_000, 0.1)] * 3, 10.0, 8_000_000, id="a longer trigger has room for more"),
        pytest.param([full(100_000, 0.0)] * 3, 10.0, MOST, id="there is a most"),
        pytest.param([full(100_000, 1e6)] * 3, 1.0, LEAST, id="there is a least"),
    ],
)  # fmt: skip
def test_the_intake_follows_the_time_of_an_epoch(epochs: list[Taken], target_s: float, rows: int) -> None:
    planned = plan_intake(NOW, epochs, [], target_s)
    assert planned.rows == rows
    assert (planned is NOW) == (rows == NOW.rows)


def test_the_reason_has_the_numbers() -> None:
    planned = plan_intake(NOW, [full(100_000, 0.5)] * 3, [], 2.0)
    assert planned.reason == "epochs of 100,000 rows went at 200,000 rows/s; epochs are to take 2 s"


MB = 1_000_000


@pytest.mark.parametrize(
    ("rows", "files", "planned", "reason"),
    [
        pytest.param([], [full(60 * MB, 10.0)] * 3, (100_000, 4_800_000), "64 MB went at 6 MB/s", id="slow files"),
        pytest.param([], [full(64 * MB, 0.1)] * 3, (100_000, 510 * MB), "64 MB went at 640 MB/s", id="fast files"),
        pytest.param([], [full(64 * MB, 0.9)] * 3, (100_000, 64 * MB), None, id="files that fit"),
        pytest.param([], [full(64 * MB, 9.0)] * 2 + [Taken(MB, 0.1, False)], (100_000, 64 * MB), None, id="no backlog"),
        pytest.param([], [full(3_000 * MB, 100.0)] * 3, (100_000, 24 * MB), "30 MB/s", id="files larger than allowed"),
        pytest.param([], [full(64 * MB, 1e6)] * 3, (100_000, LEAST_BYTES), "went at", id="a least"),
        pytest.param([], [full(64 * MB, 1e-6)] * 3, (100_000, MOST_BYTES), "went at", id="a most"),
        pytest.param([full(100_000, 8.0)] * 3, [full(64 * MB, 8.0)] * 3, (10_000, 6_400_000),
                     "100,000 rows went at 12,500 rows/s, epochs of 64 MB went at 8 MB/s; epochs are to take 1 s",
                     id="both at a time shrink by the same"),
        pytest.param([Taken(5, 8.0, False)] * 3, [full(64 * MB, 8.0)] * 3, (100_000, 6_400_000), "of 64 MB",
                     id="messages that do not wait stay as they are"),
    ],
)  # fmt: skip
def test_files_are_counted_in_bytes(
    rows: list[Taken], files: list[Taken], planned: tuple[int, int], reason: str | None
) -> None:
    found = plan_intake(NOW, rows, files, 1.0)
    assert (found.rows, found.bytes) == planned
    assert found is NOW if reason is None else reason in found.reason


@given(st.integers(LEAST, MOST), st.floats(1, 1e4), st.floats(0.05, 60))
def test_what_was_planned_is_not_changed_at_once(rows: int, per_row_us: float, target_s: float) -> None:
    """With a constant cost per row the first change is the last."""
    now = Intake(rows, "")
    planned = plan_intake(now, [full(rows, rows * per_row_us / 1e6)] * 3, [], target_s)
    again = plan_intake(planned, [full(planned.rows, planned.rows * per_row_us / 1e6)] * 3, [], target_s)
    assert again is planned or planned.rows in (LEAST, MOST)
