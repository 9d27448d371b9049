"""Results in a real PostgreSQL: an epoch once, whole or not at all, and no secret in what goes wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from postgres import PASSWORD, Postgres
from world import SCHEMA, make_epochs, write_epochs

import headrace as hr
from headrace.engine.sinks.jdbc import JdbcSink
from headrace.errors import EngineError, EnvironmentProblem, HeadraceError, SpecError, StateError
from headrace.language import bind_query, parse_schema
from headrace.model import Query, SinkSpec, Stream


def query(postgres: Postgres, table: str, **options: str) -> Query:
    settings = {"url": postgres.url, "dbtable": table, "user": "ann", "password": PASSWORD, **options}
    stream = Stream("r", parse_schema("ts TIMESTAMP, id BIGINT"), "ts")
    bound = bind_query("q", "SELECT id FROM r", {"r": stream})
    return replace(bound, sink=SinkSpec("jdbc", None, tuple(settings.items())))


def test_an_epoch_given_again_changes_nothing(spark: Any, postgres: Postgres) -> None:
    JdbcSink(query(postgres, "once"), spark, "app").write(spark.range(5), 7, False)
    again = JdbcSink(query(postgres, "once"), spark, "app")
    assert again.write(spark.range(5), 7, True) is None
    with pytest.raises(StateError, match="the table once has had epoch 7 of this checkpoint"):
        again.write(spark.range(5), 7, False)
    assert again.write(spark.range(5, 8), 8, False) == 3
    assert JdbcSink(query(postgres, "once"), spark, "app").last_epoch() == 8
    assert sorted(postgres.query("SELECT id FROM once", "ann")) == [(str(i),) for i in range(8)]
    assert postgres.query("SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace_staging%'", "ann") == []


class Repeating(JdbcSink):
    """Spark whose tasks have all been run twice, and have committed both times."""

    def _stage(self, results: Any) -> None:
        super()._stage(results)
        with self._connected() as database:
            self._execute(
                database,
                f"INSERT INTO {self.staging} SELECT id, headrace_part, headrace_attempt + 7 FROM {self.staging}",
            )
            database.commit()


def test_a_task_that_was_run_twice_counts_once(spark: Any, postgres: Postgres) -> None:
    assert Repeating(query(postgres, "repeated"), spark, "again").write(spark.range(0, 9, 1, 3), 0, False) == 9
    assert sorted(postgres.query("SELECT id FROM repeated", "ann")) == [(str(i),) for i in range(9)]


def test_two_checkpoints_write_to_one_table(spark: Any, postgres: Postgres) -> None:
    for application in ("one", "two"):
        JdbcSink(query(postgres, "public.shared"), spark, application).write(spark.range(2), 0, False)
    assert len(postgres.query("SELECT id FROM shared", "ann")) == 4


def test_a_sink_that_is_gone_leaves_results_and_nothing_else(spark: Any, postgres: Postgres) -> None:
    sink = JdbcSink(query(postgres, "kept"), spark, "leaving")
    sink.write(spark.range(2), 0, False)
    sink._stage(spark.range(3))
    sink.forget()
    assert len(postgres.query("SELECT id FROM kept", "ann")) == 2
    assert postgres.query("SELECT epoch FROM headrace_epochs WHERE application = 'leaving'", "ann") == []
    assert postgres.query("SELECT tablename FROM pg_tables WHERE tablename LIKE 'headrace_staging%'", "ann") == []


def test_types_and_names_arrive_as_they_are(spark: Any, postgres: Postgres) -> None:
    values = [
        "TIMESTAMP'2024-01-02T03:04:05.678901Z' AS window_end", "'x' AS `Odd name`", "CAST(1.5 AS DECIMAL(10,2)) AS d",
        "CAST(NULL AS DOUBLE) AS f", "true AS b",
    ]  # fmt: skip
    JdbcSink(query(postgres, "typed"), spark, "typed").write(spark.range(1).selectExpr(*values), 0, False)
    assert postgres.query('SELECT window_end, "Odd name", d, f, b FROM typed', "ann") == [
        ("2024-01-02 03:04:05.678901+00", "x", "1.50", "", "t")
    ]


def test_a_wrong_password_is_a_problem_without_the_password(spark: Any, postgres: Postgres) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        JdbcSink(query(postgres, "x", password="not it, surely"), spark, "app")
    assert 'password authentication failed for user "ann"' in str(caught.value)
    assert "not it" not in str(caught.value)
    with pytest.raises(EnvironmentProblem) as caught:
        JdbcSink(query(postgres, "x", url=f"{postgres.url}?password=not+it", password=""), spark, "app")
    assert "not+it" not in str(caught.value)


def test_a_database_that_is_not_there_stops_the_run(spark: Any, postgres: Postgres) -> None:
    sink = JdbcSink(query(postgres, "x"), spark, "app")
    sink.options["url"] = "jdbc:postgresql://127.0.0.1:9/none"
    with pytest.raises(EngineError, match="nothing is lost") as caught:
        sink.write(spark.range(1), 0, False)
    assert PASSWORD not in str(caught.value)


def test_what_is_missing_is_said(spark: Any, postgres: Postgres) -> None:
    wrong = query(postgres, "x")
    with pytest.raises(SpecError, match="a jdbc sink needs the option 'url'"):
        JdbcSink(replace(wrong, sink=SinkSpec("jdbc")), spark, "app")
    with pytest.raises(SpecError, match="the environment variable HEADRACE_NO_SUCH, which is not set"):
        JdbcSink(query(postgres, "x", password="${env:HEADRACE_NO_SUCH}"), spark, "app")


def test_what_the_database_refuses_is_all_refused(spark: Any, postgres: Postgres) -> None:
    postgres.query("CREATE TABLE small (id BIGINT CHECK (id < 3))", "ann")
    sink = JdbcSink(query(postgres, "small"), spark, "app-small")
    with pytest.raises(HeadraceError, match="violates check constraint") as caught:
        sink.write(spark.range(5), 0, False)
    assert not isinstance(caught.value, EngineError), "the query has failed, others go on"
    assert postgres.query("SELECT * FROM small", "ann") == []
    assert sink.write(spark.range(3), 0, True) == 3


def test_a_query_whose_results_are_refused_fails_alone(spark: Any, postgres: Postgres, tmp_path: Path) -> None:
    columns = "window_start TIMESTAMPTZ, window_end TIMESTAMPTZ, k VARCHAR(1), n BIGINT"
    postgres.query(f"CREATE TABLE narrow ({columns})", "ann")
    write_epochs(tmp_path / "in", make_epochs(seed=44, epochs=3))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    pipe = hr.Pipeline("narrow").stream("r", stream, time="ts", lateness="20 seconds")
    sql = "SELECT k, COUNT(*) AS n FROM r [WINDOW 60 s SLIDE 20 s] GROUP BY k"
    pipe.query("bad", sql, sink=hr.jdbc(postgres.url, "narrow", user="ann", password=PASSWORD))
    pipe.query("good", sql)
    run = pipe.start(spark, str(tmp_path / "state"), once=True, flush=True)
    run.await_termination()
    assert "too long for type character varying(1)" in str(run.progress.queries["bad"].failed)
    assert run.progress.queries["good"].failed is None
    table = run.table("good")
    assert table is not None
    assert table.num_rows > 0
