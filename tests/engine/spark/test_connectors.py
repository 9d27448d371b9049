"""Jars beside Spark's own: how Spark is told of them, and what is said when they are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.engine import session_settings
from headrace.engine.spark import connectors
from headrace.errors import EnvironmentProblem
from headrace.language import load_pipeline
from headrace.model import Pipeline

PIPELINE = """
streams:
  a:
    source: {format: kafka, value: {format: avro, schema: '{"type": "string"}'}}
    schema: ts TIMESTAMP
    time: ts
  b: {source: {format: synthetic}}
queries:
  q: {sql: "SELECT COUNT(*) AS n FROM b [WINDOW 1 min]",
      sink: {format: jdbc, options: {url: "jdbc:postgresql://h/d", dbtable: t}}}
  k: {sql: "SELECT COUNT(*) AS n FROM b [WINDOW 1 min]", sink: {format: kafka, options: {topic: t}}}
engine: {packages: "g:a:1.0", jars: [x.jar, "hdfs://h/y.jar"], conf: {spark.jars.packages: "g:b:2", spark.x: 1}}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    file = tmp_path / "pipeline.yml"
    file.write_text(PIPELINE)
    return load_pipeline(file)


def test_packages_and_jars_are_added_to_those_of_the_settings(pipeline: Pipeline, tmp_path: Path) -> None:
    assert session_settings(pipeline, {"spark.jars": "z.jar", "spark.x": "2"}) == {
        "spark.jars": f"z.jar,{tmp_path.resolve()}/x.jar,hdfs://h/y.jar",
        "spark.jars.packages": "g:b:2,g:a:1.0",
        "spark.x": "2",
    }


class Spark:
    version = "4.3.0"


@pytest.mark.parametrize(
    ("there", "lines"),
    [
        pytest.param("Kafka Avro Driver", None, id="all is there"),
        pytest.param("Avro Driver", "'org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0'", id="no Kafka"),
        pytest.param("Kafka Driver", "'org.apache.spark:spark-avro_2.13:4.3.0'", id="no Avro"),
        pytest.param("Kafka Avro", "'org.postgresql:postgresql:42.7.14'", id="no driver"),
        pytest.param("Driver", "'org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0', "
                               "'org.apache.spark:spark-avro_2.13:4.3.0'", id="two at once"),
    ],
)  # fmt: skip
def test_the_line_to_add_is_said(
    pipeline: Pipeline, there: str, lines: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectors, "_is_there", lambda _, name: any(word in name for word in there.split()))
    spark: Any = Spark()
    if lines is None:
        connectors.check_connectors(pipeline, spark)
    else:
        with pytest.raises(EnvironmentProblem) as caught:
            connectors.check_connectors(pipeline, spark)
        assert f"engine: {{packages: [{lines}]}}" in str(caught.value)


def test_a_class_is_looked_for_where_spark_looks(spark: Any) -> None:
    assert connectors._is_there(spark, "org.apache.spark.SparkContext")
    assert not connectors._is_there(spark, "org.example.Nothing")


def test_a_package_that_cannot_be_had_is_a_problem_not_a_failure(tmp_path: Path) -> None:
    """In a process of its own: Spark fetches packages when its JVM starts."""
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="none"/><resolvers><filesystem name="none">'
        f'<artifact pattern="{tmp_path}/[artifact].[ext]"/></filesystem></resolvers></ivysettings>'
    )
    file = tmp_path / "pipeline.yml"
    file.write_text(
        "streams: {s: {source: {format: synthetic, options: {rows: 10}}}}\n"
        "queries: {q: {sql: 'SELECT COUNT(*) AS n FROM s [WINDOW 1 min]'}}\n"
        f"engine: {{packages: [org.example:none:1.0], conf: {{spark.jars.ivySettings: {settings}}}}}\n"
    )
    command = [sys.executable, "-c", "from headrace.cli import main; main()", "run", str(file), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert done.returncode == 2, done.stderr[-2000:]
    assert "headrace: Spark did not start with the packages org.example:none:1.0" in done.stderr
    assert "Traceback" not in done.stderr
