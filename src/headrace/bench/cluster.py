"""A standalone Spark cluster on this machine, from the installed PySpark, one executor per worker."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from headrace.bench.measure import descendants
from headrace.engine.spark.class_archive import archive_file, archive_options
from headrace.errors import EngineError

__all__ = ["LocalCluster", "SlowedDown", "executor_of"]

# Several JVMs start on a machine that may have two cores.
PATIENCE_S = 300
# Master and workers do little: compiling their code as well as it can be done is not worth it.
DAEMON_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class LocalCluster:
    """A master and workers of one core each; ends with the `with`."""

    def __init__(self, home: Path, workers: int, memory: str = "1g") -> None:
        self._home, self._workers, self._memory = home.absolute(), workers, memory
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> LocalCluster:
        self._home.mkdir(parents=True, exist_ok=True)
        master = self._start("master", "master.Master", "--port", "0")
        self.url = _awaited(lambda: re.search(r"spark://127\.0\.0\.1:\d+", master.read_text())).group()
        for i in range(self._workers):
            work = ("--cores", "1", "--memory", self._memory, "--work-dir", str(self._home / f"work{i}"))
            self._start(f"worker{i}", "worker.Worker", *work, self.url)
        _awaited(lambda: re.search(f"(?s)(Registering worker.*){{{self._workers}}}", master.read_text()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._processes):
            for pid in (*descendants(process.pid), process.pid):
                _send(pid, signal.SIGKILL)
            process.wait()

    def _start(self, name: str, what: str, *arguments: str) -> Path:
        import pyspark

        spark = Path(pyspark.__file__).parent
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK"))}
        environment = {
            **kept,
            "SPARK_HOME": str(spark),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": archive_options(DAEMON_OPTIONS, {}, archive_file()),
        }
        log = self._home / f"{name}.log"
        command = [str(spark / "bin" / "spark-class"), f"org.apache.spark.deploy.{what}", "--host", "127.0.0.1"]
        with log.open("wb") as out:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0", *arguments],
                    env=environment,
                    stdout=out,
                    stderr=out,
                    cwd=self._home,
                )
            )
        return log


def _awaited(what: object) -> re.Match[str]:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        found = what()  # type: ignore[operator]
        if found:
            assert isinstance(found, re.Match)
            return found
        time.sleep(0.1)
    raise EngineError(f"the cluster did not start within {PATIENCE_S} s")


def executor_of(pid: int) -> int:
    """The executor that a Python worker belongs to: its parent's parent."""
    for _ in range(2):
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def _send(pid: int, what: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, what)


class SlowedDown:
    """Stops a process and all under it for a share of every tenth of a second, until `end`."""

    def __init__(self, pid: int, share: float, period_s: float = 0.1) -> None:
        self._pid, self._share, self._period_s, self._ended = pid, share, period_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        looked, pids = 0.0, list[int]()
        while not self._ended.is_set():
            if time.monotonic() - looked > 1:
                looked, pids = time.monotonic(), [self._pid, *descendants(self._pid)]
            for pid in pids:
                _send(pid, signal.SIGSTOP)
            time.sleep(self._period_s * (1 - self._share))
            for pid in pids:
                _send(pid, signal.SIGCONT)
            time.sleep(self._period_s * self._share)

    def end(self) -> None:
        """Lets it run again."""
        self._ended.set()
        self._thread.join()
