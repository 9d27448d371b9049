"""A real PostgreSQL, Debian's, on a free port of this machine, run by a user without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest

from headrace.bench.broker import free_port

PASSWORD = "a secret, with 'quotes'"


def _tool(name: str) -> str:
    """The path of one of PostgreSQL's programs; skips the test if there is none."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda p: int(p.parts[4]))
    found = str(places[-1]) if places else shutil.which(name)
    if found is None:
        pytest.skip(f"PostgreSQL cannot be had: no {name} on this machine; on Debian install the package postgresql")
    return found


class Postgres:
    """Started on entering, gone on leaving; `ann` has a password and a database of her own."""

    def __init__(self, home: Path) -> None:
        # Only root has another user to be: PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        self.port = free_port()
        # Paths of sockets must be short, and folders above pytest's are closed to other users.
        self.home = Path("/tmp") / f"headrace-pg-{os.getpid()}-{self.port}"
        self._log = home / "postgres.txt"
        home.mkdir(parents=True, exist_ok=True)

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/ann"

    def query(self, sql: str, user: str = "admin") -> list[tuple[str, ...]]:
        """Rows as texts, by psql; null is an empty text."""
        database = "ann" if user == "ann" else "postgres"
        command = [_tool("psql"), "-h", "127.0.0.1", "-p", str(self.port), "-U", user, "-d", database,
                   "-v", "ON_ERROR_STOP=1", "-AtqF", "\x1f", "-c", sql]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PGPASSWORD": PASSWORD, "PGTZ": "UTC"}
        )
        assert done.returncode == 0, done.stderr
        return [tuple(line.split("\x1f")) for line in done.stdout.splitlines()]

    def _run(self, *command: str) -> None:
        with self._log.open("ab") as log:
            subprocess.run(
                command, user=self._user, cwd="/tmp", stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True
            )

    def __enter__(self) -> Postgres:
        data, password = self.home / "data", self.home / "password"
        self.home.mkdir(mode=0o755)
        password.write_text(PASSWORD)
        if self._user is not None:
            os.chown(self.home, pwd.getpwnam(self._user).pw_uid, -1)
        try:
            self._run(
                _tool("initdb"),
                "-D",
                str(data),
                "-U",
                "admin",
                "-A",
                "scram-sha-256",
                f"--pwfile={password}",
                "-E",
                "UTF8",
                "-N",
            )
            self._run(_tool("pg_ctl"), "-D", str(data), "-w", "-t", "60", "-l", str(self.home / "server.txt"), "-o",
                      f"-F -h 127.0.0.1 -p {self.port} -k {self.home}", "start")  # fmt: skip
            self.query(f"CREATE ROLE ann LOGIN PASSWORD $${PASSWORD}$$")
            self.query("CREATE DATABASE ann OWNER ann")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        data = self.home / "data"
        if (data / "postmaster.pid").exists():
            self._run(_tool("pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
            time.sleep(0.1)
        shutil.rmtree(self.home, ignore_errors=True)
