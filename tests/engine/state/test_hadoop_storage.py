"""The Hadoop storage keeps the same contract as the local one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from storage_contract import *  # noqa: F403

from headrace.engine.state.storage import HadoopStorage
from headrace.policies.lease import LeaseTimes


@pytest.fixture
def reopen(spark: Any, tmp_path: Path) -> Any:
    # Renewed often, so that a second engine soon sees that the first is alive; given up late, on a busy machine too.
    often = LeaseTimes(lease_s=600, lost_s=400, renew_s=0.2, look_s=0.1)
    return lambda: HadoopStorage(f"file://{tmp_path}/store", spark, often)
