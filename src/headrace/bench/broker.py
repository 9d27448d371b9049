"""A real Kafka broker: one node in KRaft mode, on free ports of this machine, stopped and started as one likes."""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from headrace.bench.jars import BROKER, fetch_jars, java
from headrace.errors import EnvironmentProblem

__all__ = ["Broker", "free_port"]

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={home}/log
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=2
"""


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Broker:
    """Started on entering, gone on leaving; its data lies in `home`."""

    def __init__(self, home: Path) -> None:
        self.home, self.port = home, free_port()
        self._classes = os.pathsep.join(map(str, fetch_jars([BROKER], transitive=True)))
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        text = PROPERTIES.format(port=self.port, controller=free_port(), home=home)
        (home / "server.properties").write_text(text)
        identity = base64.urlsafe_b64encode(bytes(15) + b"\1").decode().rstrip("=")
        self._java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(home / "server.properties")).wait()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.home / "log.txt").open("ab") as log:
            return subprocess.Popen(
                [java(), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", self._classes, *arguments],
                cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start(self) -> None:
        """Returns when it takes connections."""
        self._process = self._java("kafka.Kafka", str(self.home / "server.properties"))
        deadline = time.monotonic() + 90
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise EnvironmentProblem(f"the broker did not start: {(self.home / 'log.txt').read_text()[-3000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)

    def stop(self) -> None:
        """Ends it as an operator would; its data stays."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
