"""The Hadoop storage keeps the same contract as the local one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from storage_contract import *  # noqa: F403

from headrace.engine.storage import HadoopStorage


@pytest.fixture
def reopen(spark: Any, tmp_path: Path) -> Any:
    return lambda: HadoopStorage(f"file://{tmp_path}/store", spark)
