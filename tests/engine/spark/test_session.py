"""Spark that does not start: one sentence that says where to look."""

from __future__ import annotations

import pytest

from headrace.engine.spark.session import _checked_master, _why_no_spark
from headrace.errors import SpecError


@pytest.mark.parametrize(
    "master",
    ["local", "local[2]", "local[*]", "local[*,4]", "local[2, 4]", "local-cluster[2,1,1024]", "spark://a:7077,b:7077",
     "yarn", "k8s://https://host:443"],
)  # fmt: skip
def test_masters_that_spark_knows(master: str) -> None:
    assert _checked_master(master) == master


@pytest.mark.parametrize(
    "master", ["", "moon", "local[", "local[0]", "local[-1]", "local[x]", "spark://", "local;rm", "yarn-client"]
)
def test_masters_that_it_does_not(master: str) -> None:
    with pytest.raises(SpecError, match="is not a Spark master; write local"):
        _checked_master(master)


@pytest.mark.parametrize(
    ("report", "settings", "sentence"),
    [
        pytest.param("[JAVA_GATEWAY_EXITED] ...", {}, "Spark's Java process did not start (its report", id="Java"),
        pytest.param(
            "[JAVA_GATEWAY_EXITED] ...", {"spark.jars.packages": "a:b:1"}, "with the packages a:b:1", id="jars"
        ),
        pytest.param(
            "An error occurred calling None.x\n: java.lang.IllegalArgumentException: x should be int, not y\n\tat",
            {},
            "Spark did not start: java.lang.IllegalArgumentException: x should be int, not y; check --master",
            id="a setting",
        ),
        pytest.param("", {}, "Spark did not start: no reason given; check --master, --conf and engine", id="nothing"),
    ],
)
def test_why_spark_did_not_start(report: str, settings: dict[str, str], sentence: str) -> None:
    said = _why_no_spark(report, settings)
    assert sentence in said
    assert "\n" not in said
