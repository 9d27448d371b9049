"""Jars that benchmarks and tests need beside Spark's own, fetched from Maven once by the Ivy Spark ships, then kept.

HEADRACE_JARS names the folder they are kept in, HEADRACE_IVYSETTINGS an Ivy settings file for another repository.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pyspark

from headrace.errors import EnvironmentProblem

__all__ = ["AVRO", "BROKER", "KAFKA", "POSTGRES", "fetch_jars", "java"]

# A broker, with all it needs.
BROKER = "org.apache.kafka:kafka_2.13:4.3.1"
# Spark's connectors one by one: not every release of Spark has all of them in every repository, and these fit.
KAFKA = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:4.3.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)
POSTGRES = ("org.postgresql:postgresql:42.7.14",)
# A slow line takes this long for the largest of them.
PATIENCE_S = 240


def java() -> str:
    """The Java that Spark uses."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def fetch_jars(packages: Iterable[str], transitive: bool = False) -> tuple[Path, ...]:
    """The jars of these packages, with `transitive` of all they need too; EnvironmentProblem if they cannot be had."""
    home = Path(os.environ.get("HEADRACE_JARS") or Path.home() / ".cache" / "headrace" / "jars")
    found: list[Path] = []
    for package in packages:
        folder = home / package.replace(":", "_")
        if not folder.exists():
            home.mkdir(parents=True, exist_ok=True)
            with (home / "lock").open("w") as lock:
                # One at a time: Ivy's cache is not made for two.
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not folder.exists():
                    _retrieve(package, folder, transitive)
        found += sorted(folder.glob("*.jar"))
    return tuple(found)


def _retrieve(package: str, folder: Path, transitive: bool) -> None:
    staging = folder.with_name(f"{folder.name}.{os.getpid()}")
    shutil.rmtree(staging, ignore_errors=True)
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    settings = os.environ.get("HEADRACE_IVYSETTINGS")
    command = [java(), "-cp", str(ivy), "org.apache.ivy.Main", "-warn", "-cache", str(folder.parent / "ivy"),
               "-confs", "default", "-dependency", *package.split(":"), "-types", "jar", "bundle",
               "-retrieve", f"{staging}/[artifact]-[revision](-[classifier]).[ext]"]  # fmt: skip
    command += [] if transitive else ["-notransitive"]
    command += ["-settings", settings] if settings else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise EnvironmentProblem(f"Maven cannot be reached for {package}: {failure}") from failure
    if done.returncode or not list(staging.glob("*.jar")):
        shutil.rmtree(staging, ignore_errors=True)
        told = [line.strip(" :\t") for line in (done.stdout + done.stderr).splitlines() if "not found" in line]
        raise EnvironmentProblem(f"Maven does not give {package}: {(told or ['no reason given'])[-1]}")
    staging.rename(folder)
