"""An epoch depends on its decision and its rows alone: edits between a crash and the next start come after it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from edited import by_chance, twice

# Random edits per test run; HEADRACE_EDITS=30 plays more.
EDITS = int(os.environ.get("HEADRACE_EDITS", "3"))
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("seed", range(EDITS))
def test_edits_by_chance(seed: int, spark: Any, tmp_path: Path) -> None:
    before, after, strike, told = by_chance(seed)
    print(told)
    twice(spark, tmp_path, before, after, strike, seed)
