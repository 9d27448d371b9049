"""What `spark.headrace.flux.*` may say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.keyed import flux_settings, memory_of_bins
from headrace.errors import SpecError
from headrace.policies import FluxSettings


def session(**given: str) -> Any:
    """As much of a session as settings need."""
    values = {f"spark.headrace.flux.{name}": value for name, value in given.items()}
    conf = SimpleNamespace(get=lambda name, default: values.get(name, default))
    return SimpleNamespace(
        conf=conf, sparkContext=SimpleNamespace(getConf=lambda: SimpleNamespace(getAll=lambda: list(values.items())))
    )


def test_defaults():
    assert flux_settings(session()) == FluxSettings()
    assert memory_of_bins(session()) == ()


def test_settings_are_read():
    found = flux_settings(session(moves="off", budget="10", buffer="20", minis="3", ahead="2"))
    assert found == FluxSettings(False, 10, 20, 2, 3)
    assert memory_of_bins(session(memory="5,6")) == (5, 6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"speed": "1"}, "unknown setting 'spark.headrace.flux.speed'; known: ", id="an unknown one"),
        pytest.param({"moves": "on"}, "moves is 'on'; it can be auto, off", id="moves"),
        pytest.param({"budget": "lots"}, "spark.headrace.flux.*: invalid literal", id="not a number"),
        pytest.param({"minis": "0"}, "minis_per_bin must be at least 1, not 0", id="too few"),
        pytest.param({"memory": "1,x"}, "memory is '1,x'; write bytes", id="memory"),
    ],
)
def test_nonsense_is_refused(given: dict[str, str], message: str):
    with pytest.raises(SpecError, match=message.replace("*", r"\*")):
        flux_settings(session(**given))
