"""Results in a table of a database: an epoch is one transaction, and the database itself knows which have happened.

Spark writes an epoch's results to a table of their own (`headrace_staging_...`). One transaction then moves them into
the table and notes the epoch in `headrace_epochs`; of a repeated epoch that is noted already nothing is moved. So
readers see all results of an epoch or none, and each once, whenever the engine dies.
"""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from headrace.engine.failures import raise_if_not_a_querys
from headrace.engine.sinks.latest import latest_of
from headrace.engine.sinks.shape import shape_of
from headrace.engine.sinks.sink import Sink, had_before
from headrace.engine.spark.secrets import resolve
from headrace.errors import EngineError, EnvironmentProblem, HeadraceError, Problem, SpecError, StateError
from headrace.kernels.tagging import TAGS, tagged
from headrace.model import ANOTHER, ANOTHER_HINT, Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["JdbcSink"]

NOTES = "headrace_epochs"
# Columns that rows have while they are staged.
# Classes of SQLSTATE for what passes: connection, rollback of a transaction, resources, locks, operators, the system.
_PASSING = frozenset({"08", "40", "53", "55", "57", "58"})
# How long a connection may take to say that it lives.
ALIVE_S = 5


class JdbcSink(Sink):
    """Moves results into a table, an epoch per transaction."""

    def __init__(self, query: Query, spark: SparkSession, application: str) -> None:
        self.query, self.application, self._spark = query.name, application, spark
        self._key, self._latest = query.sink.key, query.sink.latest
        self.options = resolve(query.sink.options, f"query '{query.name}'")
        for needed in ("url", "dbtable"):
            if needed not in self.options:
                raise SpecError(Problem(f"a jdbc sink needs the option '{needed}'", query=query.name))
        # Spark finds a driver by itself only among jars it was built with.
        if self.options["url"].startswith("jdbc:postgresql:"):
            self.options.setdefault("driver", "org.postgresql.Driver")
        self._name = "'" + application.replace("'", "''") + "'"
        self.table = self.options["dbtable"]
        schema = self.table.rpartition(".")[0]
        name = f"headrace_staging_{sha256(application.encode()).hexdigest()[:12]}"
        self.staging = f"{schema}.{name}" if schema else name
        self.notes = f"{schema}.{NOTES}" if schema else NOTES
        self._last = self._prepare()
        self._refuse_other_columns([name for name, _ in shape_of(query)])

    def last_epoch(self) -> int:
        return self._last

    def forget(self) -> None:
        """Removes the note of its epochs, and what an interrupted one may have left."""
        with self._connected() as database:
            self._execute(database, f"DROP TABLE IF EXISTS {self.staging}")
            self._execute(database, f"DELETE FROM {self.notes} WHERE application = {self._name}")
            database.commit()

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        with self._connected() as database:
            if had_before(f"the table {self.table}", self._noted(database), epoch, replay):
                return None
            key, latest = self._key, self._latest
            self._stage(results if latest is None else latest_of(results, key, latest))
            columns = ", ".join(self._quoted(name) for name in results.columns)
            self._execute(
                database, f"CREATE TABLE IF NOT EXISTS {self.table} AS SELECT {columns} FROM {self.staging} WHERE 1 = 0"
            )
            database.commit()
            note = f"UPDATE {self.notes} SET epoch = {epoch} WHERE application = {self._name} AND epoch < {epoch}"
            if self._execute(database, note) != 1:
                # Another engine was faster, or has removed the note.
                had_before(f"the table {self.table}", max(epoch, self._noted(database)), epoch, False)
            # Spark commits what a task has written, and may run it again: of each part one attempt counts.
            part, attempt = (self._quoted(name) for name in TAGS)
            first = f"SELECT {part} AS headrace_p, MIN({attempt}) AS headrace_a FROM {self.staging} GROUP BY {part}"
            once = f"{self.staging} s JOIN ({first}) f ON {part} = headrace_p AND {attempt} = headrace_a"
            if latest is not None:
                self._execute(database, self._superseded(once))
                # Of a key that is still there, the table has a later result.
                columns_of = ", ".join(f"s.{self._quoted(name)}" for name in results.columns)
                chosen = f"SELECT {columns_of} FROM {once} WHERE NOT EXISTS ({self._same_key()})"
            else:
                chosen = f"SELECT {columns} FROM {once}"
            rows = self._execute(database, f"INSERT INTO {self.table} ({columns}) {chosen}")
            database.commit()
            self._execute(database, f"DROP TABLE {self.staging}")
            database.commit()
            return rows

    def _same_key(self) -> str:
        """A subquery of the table's rows with the key of a staged row `s`."""
        pairs = ((f"t.{name}", f"s.{name}") for name in map(self._quoted, self._key))
        same = " AND ".join(f"({t} = {s} OR ({t} IS NULL AND {s} IS NULL))" for t, s in pairs)
        return f"SELECT 1 FROM {self.table} t WHERE {same}"

    def _superseded(self, staged: str) -> str:
        """Removes rows of the table in whose place staged ones come: those that are no later."""
        assert self._latest is not None
        latest, table = self._quoted(self._latest), self.table
        pairs = ((f"{table}.{name}", f"s.{name}") for name in map(self._quoted, self._key))
        same = " AND ".join(f"({t} = {s} OR ({t} IS NULL AND {s} IS NULL))" for t, s in pairs)
        later = f"(s.{latest} >= {table}.{latest} OR {table}.{latest} IS NULL)"
        return f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {staged} WHERE {same} AND {later})"

    def _prepare(self) -> int:
        """Makes sure of the connection and of the table of notes, before any row is read; the last epoch noted."""
        try:
            with self._connected() as database:
                self._execute(
                    database,
                    f"CREATE TABLE IF NOT EXISTS {self.notes} "
                    "(application VARCHAR(300) PRIMARY KEY, epoch BIGINT NOT NULL)",
                )
                noted = self._noted(database)
                if noted == -2:
                    self._execute(database, f"INSERT INTO {self.notes} VALUES ({self._name}, -1)")
                database.commit()
                return max(noted, -1)
        except HeadraceError as error:
            told = self._told(error.__cause__ or error)
            raise EnvironmentProblem(f"query '{self.query}' cannot use its database: {told}") from error

    def _refuse_other_columns(self, columns: Sequence[str]) -> None:
        """SpecError if the table is there and lacks a column of the results; it may have more."""
        there = self._columns()
        lacking = [name for name in columns if name.lower() not in there] if there else []
        if lacking:
            why = f"it lacks {', '.join(lacking)}"
            raise SpecError(
                Problem(ANOTHER.format(f"the table {self.table}", why), query=self.query, hint=ANOTHER_HINT)
            )

    def _columns(self) -> frozenset[str]:
        """The columns of the table in small letters; none if there is no table, or they cannot be read."""
        try:
            with self._connected() as database:
                found = database.createStatement().executeQuery(f"SELECT * FROM {self.table} WHERE 1 = 0").getMetaData()
                return frozenset(str(found.getColumnName(i + 1)).lower() for i in range(found.getColumnCount()))
        except HeadraceError:
            return frozenset()

    def _noted(self, database: Any) -> int:
        """The last epoch that has been moved; -1 before the first, -2 if the application is new."""
        statement = database.createStatement()
        try:
            found = statement.executeQuery(f"SELECT epoch FROM {self.notes} WHERE application = {self._name}")
            return int(found.getLong(1)) if found.next() else -2
        finally:
            statement.close()

    def _stage(self, results: DataFrame) -> None:
        rows = results.mapInArrow(tagged, _tagged_schema(results))
        writer = rows.write.format("jdbc").options(**{**self.options, "dbtable": self.staging})
        writer.mode("overwrite").save()

    def _execute(self, database: Any, sql: str) -> int:
        statement = database.createStatement()
        try:
            return int(statement.executeUpdate(sql))
        finally:
            statement.close()

    def _quoted(self, name: str) -> str:
        return str(self._jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self.options["url"]).quoteIdentifier(name))

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        """A connection that commits when it is told to; what goes wrong in it is an error without secrets."""
        database = None
        try:
            database = self._connect()
            database.setAutoCommit(False)
            yield database
        except StateError:
            raise
        except Exception as failure:
            if database is not None and _lives(database) and not _passes(failure):
                raise_if_not_a_querys(failure)
                # A database that lives has refused what it was given: the query's affair, and the others go on.
                raise HeadraceError(self._told(failure)) from failure
            raise EngineError(
                f"query '{self.query}' cannot write to its database: {self._told(failure)}; nothing is lost, "
                "the run goes on from here when it is started again"
            ) from failure
        finally:
            if database is not None:
                database.close()

    def _connect(self) -> Any:
        jvm = self._jvm
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self.options["url"])
        parameters = jvm.PythonUtils.toScalaMap(self.options)
        options = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(parameters)
        return dialect.createConnectionFactory(options).apply(-1)

    def _told(self, failure: BaseException) -> str:
        """The first telling line of a failure."""
        lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
        causes = [line for line in lines if "Exception:" in line and "Py4J" not in line]
        telling = [*causes, *lines, type(failure).__name__][0]
        return telling.rpartition("Exception:")[2].strip() or telling


def _tagged_schema(results: DataFrame) -> StructType:
    from pyspark.sql.types import LongType, StructField, StructType

    return StructType([*results.schema.fields, *(StructField(name, LongType(), False) for name in TAGS)])


def _passes(failure: BaseException) -> bool:
    """Whether the database says of a failure that another try may go well: deadlocks, no room, no connection, ..."""
    cause = getattr(failure, "java_exception", None) or getattr(failure, "_origin", None)
    for _ in range(10):
        if cause is None:
            break
        state = cause.getSQLState() if _is_sql(cause) else None
        if state is not None and str(state)[:2] in _PASSING:
            return True
        cause = cause.getCause()
    return False


def _is_sql(error: Any) -> bool:
    return bool(error.getClass().getName().startswith(("java.sql.", "org.postgresql.")))


def _lives(database: Any) -> bool:
    try:
        return bool(database.isValid(ALIVE_S))
    except Exception:
        return False
