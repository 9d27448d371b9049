"""Whose failure a chain of Java exceptions is: by classes and conditions, whatever their messages say."""

from __future__ import annotations

import pytest

from headrace.engine.spark.thrown import Link, judged
from headrace.errors import CorruptStateError, QueryFailure
from headrace.kernels.border import Bordered, TaskFailed
from headrace.model import Fault

# Texts that name faults of machines, as a row may have them.
POISON = "cancelled Interrupted java.io.IOException: x OSError: x CorruptStateError: x SparkContext was shut down"
LOST = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times: ExecutorLostFailure (executor 1 exited)"
LARGE = "Job aborted due to stage failure: Total size of serialized results of 4 tasks (2.0 MiB) is bigger than ..."
EXCEPTION = ("java.lang.RuntimeException", "java.lang.Exception", "java.lang.Throwable")
IO = ("java.io.IOException", "java.lang.Exception")


def spark(condition: str | None = None, state: str | None = None, message: str = POISON) -> Link:
    return Link(("org.apache.spark.SparkException", "java.lang.Exception"), message, condition, state)


def java(name: str, *above: str, message: str = POISON) -> Link:
    return Link((name, *above), message)


JOB = spark(message="Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times: " + POISON)
WRITE = spark("TASK_WRITE_FAILED", "58030")
NUMBER = Link(("org.apache.spark.SparkNumberFormatException", *EXCEPTION), POISON, "CAST_INVALID_INPUT", "22018")
ZERO = Link(("org.apache.spark.SparkArithmeticException", *EXCEPTION), POISON, "DIVIDE_BY_ZERO", "22012")


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param([NUMBER], id="a bad cast"),
        pytest.param([ZERO], id="a division by zero"),
        pytest.param([JOB, ZERO], id="a division by zero, in a job"),
        pytest.param([JOB, WRITE, NUMBER], id="a bad cast while rows are written"),
        pytest.param([spark("USER_RAISED_EXCEPTION", "P0001")], id="raise_error"),
        pytest.param([spark("MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION", "22023"),
                      java("com.fasterxml.jackson.core.JsonParseException", *IO)], id="JSON that is none"),
        pytest.param([JOB, java("com.fasterxml.jackson.core.JsonParseException", *IO)], id="the same, thrown plainly"),
        pytest.param([JOB, java("java.util.regex.PatternSyntaxException", *EXCEPTION)], id="a pattern that is none"),
        pytest.param([JOB, java("java.lang.StackOverflowError", "java.lang.Error")], id="a deep expression"),
        pytest.param([spark("FAILED_EXECUTE_UDF", "39000"), java(*IO)], id="a function's own error about files"),
        pytest.param([JOB, spark("INTERNAL_ERROR", "XX000"), java("java.lang.NullPointerException", *EXCEPTION)],
                     id="a mistake of Spark's in an expression"),
        pytest.param([spark("FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH", "KD001")], id="a type that drifted"),
        pytest.param([spark(message=LARGE)], id="results that are too large"),
        pytest.param([Link(("org.apache.spark.sql.AnalysisException",), POISON, "UNRESOLVED_COLUMN", "42703")],
                     id="a column that is not there"),
        pytest.param([Link(("org.apache.spark.api.python.PythonException",), POISON, "PYTHON_EXCEPTION", "38000")],
                     id="Python outside of our tasks"),
    ],
)  # fmt: skip
def test_values_and_expressions_are_a_querys(chain: list[Link]):
    assert judged(chain).fault is Fault.QUERY


@pytest.mark.parametrize(
    "chain",
    [
        pytest.param([spark(message=LOST)], id="an executor that is lost"),
        pytest.param([spark(message="Job 11 cancelled because SparkContext was shut down")], id="a context shut down"),
        pytest.param([spark("SPARK_JOB_CANCELLED", "XXKDA")], id="a cancelled job"),
        pytest.param([JOB, spark(message="Python worker exited unexpectedly (crashed)"),
                      java("java.io.EOFException", *IO, message="")], id="a worker that died"),
        pytest.param([JOB, java("java.lang.OutOfMemoryError", "java.lang.VirtualMachineError")], id="no memory"),
        pytest.param([JOB, Link(("org.apache.spark.memory.SparkOutOfMemoryError", "java.lang.OutOfMemoryError"), "",
                                "UNABLE_TO_ACQUIRE_MEMORY", "53200")], id="no memory for Spark"),
        pytest.param([JOB, java("org.apache.spark.shuffle.FetchFailedException", *EXCEPTION)], id="a lost shuffle"),
        pytest.param([JOB, java("org.apache.hadoop.security.AccessControlException", *IO)], id="a permission"),
        pytest.param([java("org.apache.hadoop.fs.ParentNotDirectoryException", *IO)], id="a folder that is a file"),
        pytest.param([JOB, WRITE, java("java.nio.file.FileSystemException", *IO)], id="a full disk"),
        pytest.param([JOB, WRITE], id="rows that could not be written, and nothing else"),
        pytest.param([JOB, java("java.net.SocketTimeoutException", *IO)], id="a network that does not answer"),
        pytest.param([java("java.util.concurrent.TimeoutException")], id="a broadcast that takes too long"),
        pytest.param([java("java.lang.InterruptedException")], id="an interrupt"),
        pytest.param([spark("FAILED_READ_FILE.NO_HINT", "KD001"), java(*EXCEPTION)], id="a damaged file of a source"),
        pytest.param([Link(("org.apache.spark.sql.AnalysisException",), "", "PATH_NOT_FOUND", "42K03")],
                     id="a file that is gone"),
    ],
)  # fmt: skip
def test_machines_and_storage_are_no_querys(chain: list[Link]):
    assert judged(chain).fault is Fault.MACHINE


@pytest.mark.parametrize(
    ("error", "fault", "text"),
    [
        pytest.param(CorruptStateError("x is missing"), Fault.CORRUPT, "x is missing", id="damaged state"),
        pytest.param(OSError("no room"), Fault.MACHINE, "files could not be read or written: no room", id="a disk"),
        pytest.param(QueryFailure("too many digits"), Fault.QUERY, "too many digits", id="a query's"),
    ],
)
def test_our_tasks_say_it_themselves(error: Exception, fault: Fault, text: str):
    def task(_: object) -> list[int]:
        raise error

    with pytest.raises(TaskFailed) as raised:
        list(Bordered(task)(None))
    traceback = f"{POISON}\nTraceback (most recent call last):\nheadrace.kernels.border.TaskFailed: {raised.value}\n"
    python = Link(("org.apache.spark.api.python.PythonException",), traceback, "PYTHON_EXCEPTION", "38000")
    for chain in ([python], [JOB, python], [JOB, WRITE, python]):
        failure = judged(chain)
        assert (failure.fault, failure.text) == (fault, text)


def test_a_cause_names_the_expression_in_the_querys_words():
    told = "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL (line 1, position 1) ==\na0 / a1\n^^^^^^^"
    link = Link(("org.apache.spark.SparkArithmeticException",), told, "DIVIDE_BY_ZERO", "22012")
    failure = judged([JOB, link], {"a0": "SUM(r.i)", "a1": "COUNT(*)"})
    assert failure.text == "in SUM(r.i) / COUNT(*): Division by zero (DIVIDE_BY_ZERO)"
