"""The Spark session Headrace runs in."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.engine.spark.class_archive import archive_file, archive_options
from headrace.engine.spark.jvm_output import hidden_output
from headrace.errors import EnvironmentProblem, SpecError
from headrace.hiding import remember
from headrace.policies import SETTINGS, Tuning, tuning_of
from headrace.policies.required import REQUIRED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["bin_bytes_from", "build_session", "end_session", "log_options", "settings_from", "tune", "tuning_from"]

# Hadoop gives files the permissions it thinks right, whatever the process's umask is, unless it is told.
_UMASK = "fs.permissions.umask-mode"

# Spark measures the bytes of an Arrow batch after every row unless this limit is the greatest there is, which more
# than doubles the cost of handing rows to Python; batches are bounded by rows instead.
_FAST_ARROW = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}

_STATIC = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    # Hadoop's checksummed local file system starts a process per file it makes; ours and Parquet's checksums remain.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    # Every tenth batch Spark writes the list of all files that a source has read anew; old lists stay for ten minutes
    # unless it is told otherwise, and there would be sixty of them.
    "spark.sql.streaming.fileSource.log.cleanupDelay": "1min",
    # A task that was stopped and does not end takes its executor with it; a local one goes on.
    "spark.task.reaper.enabled": "true",
    "spark.task.reaper.killTimeout": "60s",
}


_QUIET = Path(__file__).with_name("log4j2.properties")
_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"

# As Spark reads them.
_MASTER = re.compile(
    r"local|local\[(\*|[1-9][0-9]{0,3})(\s*,\s*[1-9][0-9]{0,3})?\]"
    r"|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]|spark://\S+|yarn|k8s://\S+"
)


def build_session(name: str, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """A session for one engine; `conf` wins over every setting here but those that answers depend on."""
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    # It repeats every refusal of an expression on standard error; here refusals become problems.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
    # Spark itself reads this setting from `spark-submit` only.
    if conf and "spark.pyspark.python" in conf:
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1") if (master or "local").startswith("local") else None
    remember((conf or {}).items(), os.environ)
    cores = os.cpu_count() or 2
    given = master or (conf or {}).get("spark.master")
    checked = f"local[{cores},4]" if given is None else _checked_master(given)
    builder = SparkSession.builder.appName(f"headrace {name}").master(checked)
    settings = {
        **_STATIC,
        **_FAST_ARROW,
        "spark.sql.shuffle.partitions": str(cores),
        **(conf or {}),
        **REQUIRED,
        "spark.master": checked,
    }
    name = f"spark.hadoop.{_UMASK}"
    settings[name] = _umask_mode(settings.get(name))
    if options := archive_options(log_options(settings, os.environ), os.environ, archive_file()):
        settings[_DRIVER_OPTIONS] = options
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        with hidden_output():
            session = builder.getOrCreate()
    except Exception as error:
        raise EnvironmentProblem(_why_no_spark(str(error), settings)) from error
    tune(session)
    return session


def log_options(settings: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """The driver's Java options, by which Spark logs quietly unless its user has configured its log in any way."""
    given = settings.get(_DRIVER_OPTIONS, "")
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (home and os.path.join(home, "conf"))
    configured = (
        "spark.log.level" in settings
        or any("log4j" in options for options in (given, environment.get("SPARK_SUBMIT_OPTS", "")))
        or (folder and any(Path(folder).glob("log4j2.*")))
    )
    # Options are split at blanks, which a path may have and its URI has not.
    return given if configured else f"-Dlog4j2.configurationFile={_QUIET.as_uri()} {given}".strip()


def _why_no_spark(report: str, settings: Mapping[str, str]) -> str:
    packages = settings.get("spark.jars.packages")
    if "JAVA_GATEWAY_EXITED" in report and packages:
        return (
            f"Spark did not start with the packages {packages}; if they cannot be fetched (its report is above), check "
            "names and versions, set engine: {conf: {spark.jars.repositories: ...}}, or name jars you have in engine: "
            "{jars: [...]}"
        )
    if "JAVA_GATEWAY_EXITED" in report:
        return (
            "Spark's Java process did not start (its report is above); check Java, and settings for it, such as "
            "spark.driver.memory"
        )
    lines = [line.strip(": ") for line in report.splitlines() if line.strip()]
    telling = [line for line in lines if "Exception: " in line] or lines or ["no reason given"]
    return f"Spark did not start: {telling[0]}; check --master, --conf and engine: {{conf: ...}}"


def _checked_master(master: str) -> str:
    if not _MASTER.fullmatch(master):
        raise SpecError(
            f"'{master}' is not a Spark master; write local, local[4], spark://host:7077, yarn or k8s://https://host:443"
        )
    return master


def end_session() -> None:
    """Ends this process's Spark, if it has one, so that its workers do not complain of a driver that is gone."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None:
        session.stop()


def tune(session: SparkSession) -> None:
    """Sets on a session somebody else made what answers depend on, and what costs nothing to set."""
    for key, value in {**REQUIRED, **_FAST_ARROW}.items():
        if session.conf.get(key, None) != value:
            session.conf.set(key, value)
    hadoop = session.sparkContext._jsc.hadoopConfiguration()
    hadoop.set(_UMASK, _umask_mode(hadoop.get(_UMASK)))


def _umask_mode(given: str | None) -> str:
    """What Hadoop takes away from files' permissions: what the process's umask does, and what a user told Hadoop to."""
    told = int(given, 8) if given is not None and given.isdecimal() else 0
    return f"{told | _umask():03o}"


def _umask() -> int:
    """The umask of this process, read without setting it where that is possible."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1], 8) for line in status if line.startswith("Umask:"))
    except (OSError, StopIteration):
        # Setting it is the only other way to read it: for that moment to nothing for others, never to more.
        found = os.umask(0o077)
        os.umask(found)
        return found


def bin_bytes_from(session: SparkSession) -> tuple[int, ...]:
    """The one setting that may be another in every epoch: how much memory bins have."""
    name = "spark.headrace.flux.memory"
    return tuning_of({name: value}).bin_bytes if (value := session.conf.get(name, None)) is not None else ()


def settings_from(session: SparkSession) -> dict[str, str]:
    """What `spark.headrace.*` is set to now."""
    known = {name: value for name in SETTINGS if (value := session.conf.get(name, None)) is not None}
    given = {**dict(session.sparkContext.getConf().getAll()), **known}
    return {name: value for name, value in given.items() if name.lower().startswith("spark.headrace.")}


def tuning_from(session: SparkSession) -> Tuning:
    """What `spark.headrace.*` says now; SpecError if that makes no sense."""
    return tuning_of(settings_from(session))
