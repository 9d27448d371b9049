"""What `spark.headrace.*` may say."""

from __future__ import annotations

import pytest

from headrace.errors import SpecError
from headrace.policies import FluxSettings, Tuning, tuning_of


def given(**values: str) -> dict[str, str]:
    return {f"spark.headrace.{name.replace('_', '.')}": value for name, value in values.items()}


def test_defaults():
    assert tuning_of({"spark.app.name": "x"}) == Tuning() == Tuning(FluxSettings(), (), None, "auto")


def test_settings_are_read():
    found = tuning_of(
        given(flux_moves="off", flux_budget="10", flux_buffer="20", flux_minis="3", flux_ahead="2", flux_memory="5, 6k",
              join_memory="2g", state_io="arrow")
    )  # fmt: skip
    assert found == Tuning(FluxSettings(False, 10, 20, 2, 3), (5, 6144), 2 << 30, "arrow")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"flux_speed": "1"}, "unknown setting 'spark.headrace.flux.speed'; known: spark", id="unknown"),
        pytest.param({"flux_moves": "on"}, "spark.headrace.flux.moves is 'on'; it can be auto, off", id="a word"),
        pytest.param({"state_io": "hdfs"}, "state.io is 'hdfs'; it can be auto, arrow, spark", id="another word"),
        pytest.param({"flux_budget": "lots"}, "flux.budget is 'lots'; write a size such as 512m", id="no size"),
        pytest.param({"join_memory": "1m,2m"}, "join.memory is '1m,2m'; write a size", id="one size is wanted"),
        pytest.param({"flux_budget": "0"}, "flux.budget is '0'; write a size", id="nothing"),
        pytest.param({"flux_minis": "0"}, "flux.minis is '0'; write a whole number of at least 1", id="too few"),
        pytest.param({"flux_ahead": "-3"}, "flux.ahead is '-3'; write a whole number", id="less than none"),
        pytest.param({"flux_buffer": "1.5"}, "flux.buffer is '1.5'; write a whole number", id="not whole"),
        pytest.param({"flux_memory": "1,x"}, "flux.memory is '1,x'; write a size such as 512m, or one", id="of a bin"),
        pytest.param({"flux_memory": "-5"}, "flux.memory is '-5'; write a size", id="negative"),
    ],
)
def test_nonsense_is_refused(values: dict[str, str], message: str):
    with pytest.raises(SpecError, match=message):
        tuning_of(given(**values))
