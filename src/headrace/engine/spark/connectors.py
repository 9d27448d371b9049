"""What a pipeline needs beside Spark's own jars: how Spark is told of it, and what to say when it is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import EnvironmentProblem
from headrace.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_connectors", "session_settings"]


@dataclass(frozen=True)
class Connector:
    """Jars by a class they hold, and the package that brings them; {spark} stands for Spark's version."""

    needed_for: str
    class_name: str
    package: str


_KAFKA = Connector(
    "format: kafka",
    "org.apache.spark.sql.kafka010.KafkaSourceProvider",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}",
)
_AVRO = Connector(
    "Avro values", "org.apache.spark.sql.avro.AvroDataToCatalyst", "org.apache.spark:spark-avro_2.13:{spark}"
)
_POSTGRES = Connector("jdbc:postgresql", "org.postgresql.Driver", "org.postgresql:postgresql:42.7.14")


def session_settings(pipeline: Pipeline, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a pipeline: its own and `conf`, which wins; packages and jars are added to any there."""
    settings = {**dict(pipeline.engine.conf), **conf}
    for key, added in (("spark.jars", pipeline.engine.jars), ("spark.jars.packages", pipeline.engine.packages)):
        if added:
            both = [*settings.get(key, "").split(","), *added]
            settings[key] = ",".join(dict.fromkeys(each for each in both if each))
    return settings


def check_connectors(pipeline: Pipeline, spark: SparkSession) -> None:
    """EnvironmentProblem if Spark lacks what the pipeline reads from or writes to, with the line that brings it."""
    lacking = {connector: None for connector in _needed(pipeline) if not _is_there(spark, connector.class_name)}
    if not lacking:
        return
    packages = [connector.package.format(spark=spark.version) for connector in lacking]
    what = " and ".join(connector.needed_for for connector in lacking)
    raise EnvironmentProblem(
        f"Spark has no jars for {what}; add to the pipeline file\n"
        f"  engine: {{packages: [{', '.join(repr(package) for package in packages)}]}}\n"
        "in versions made for your Spark, or name jars you have in engine: {jars: [...]}"
    )


def _needed(pipeline: Pipeline) -> Iterator[Connector]:
    for source in (stream.source for stream in pipeline.streams):
        if source is not None and source.format == "kafka":
            yield _KAFKA
            if source.value is not None and source.value.format == "avro":
                yield _AVRO
    for table in (table.source for table in pipeline.tables):
        if table is not None and dict(table.options).get("url", "").startswith("jdbc:postgresql:"):
            yield _POSTGRES
    for sink in (query.sink for query in pipeline.queries):
        match sink.format:
            case "kafka":
                yield _KAFKA
            case "jdbc" if dict(sink.options).get("url", "").startswith("jdbc:postgresql:"):
                yield _POSTGRES


def _is_there(spark: SparkSession, class_name: str) -> bool:
    jvm = spark._jvm
    assert jvm is not None
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        jvm.java.lang.Class.forName(class_name, False, loader)
    except Exception as error:
        if "ClassNotFoundException" in str(error) or "NoClassDefFoundError" in str(error):
            return False
        raise
    return True
