"""One Spark session for all tests, in a time zone that is not UTC, so that nothing can lean on the machine's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from headrace.engine.spark.class_archive import archive_file, archive_options

# How long an example takes says how busy the machine is.
settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
os.environ["TZ"] = "Asia/Kolkata"
time.tzset()
# Tests start many short-lived Sparks: compiling their code as well as it can be done takes longer than running it.
# Executors run on this machine, too, and with the same jars.
QUICKLY = archive_options("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", {}, archive_file())
os.environ.setdefault("SPARK_SUBMIT_OPTS", f"{QUICKLY} '-Dspark.executor.extraJavaOptions={QUICKLY}'")


# Files that take minutes: begun first, so that in the end no worker waits for another.
LONGEST = ("kill", "run_sites", "kafka", "chaos", "keyed", "compositions", "joins", "failures", "exact_corners",
           "examples", "growth", "replay", "spark_io", "tutorial", "fuzz", "join_cluster", "join_ways", "cluster",
           "sliding_aggregates", "lookups", "keyed_cluster", "stopping", "sharing", "nexmark", "joins_of_joins",
           "failures_cluster", "rereading", "isolation")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {f"test_{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    import jars

    from headrace.engine import build_session

    connectors = ",".join(map(str, jars.for_session()))
    session = build_session("tests", "local[2,4]", {"spark.driver.memory": "2g", "spark.jars": connectors})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Kafka broker that tests share; each has topics of its own. Skips where its jars cannot be had."""
    import jars

    from headrace.bench.broker import Broker

    jars.need_kafka()
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def postgres(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A PostgreSQL that tests share; each has tables of its own. Skips where it or its jar cannot be had."""
    import jars
    from postgres import Postgres

    jars.need(jars.POSTGRES)
    with Postgres(tmp_path_factory.mktemp("postgres")) as started:
        yield started
