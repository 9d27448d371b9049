"""A standalone Spark cluster on this machine, from the installed PySpark, and Pythons that lack packages."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.bench.cluster import LocalCluster

# Six JVMs start on a machine that may have two cores and other work.
PATIENCE_S = 300


def wait_for(what: Callable[[], object], seconds: float, why: Callable[[], str]) -> object:
    """What is waited for, once it is there; polls, for processes that tell nobody."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, why()
        time.sleep(0.1)
    return found


class Cluster(LocalCluster):
    """A master and workers of one core each, with nothing of this process's Python path, that tests look into."""

    def __init__(self, home: Path, workers: int) -> None:
        super().__init__(home, workers, memory="700m")
        self.__enter__()

    def executors(self) -> list[psutil.Process]:
        """The executors that run now."""
        found = []
        for worker in self._processes[1:]:
            for child in psutil.Process(worker.pid).children(recursive=True):
                # A process that is just ending has no command line.
                with suppress(psutil.Error):
                    if any("CoarseGrainedExecutorBackend" in word for word in child.cmdline()):
                        found.append(child)
        return found

    def stop(self) -> None:
        self.__exit__(None, None, None)


def python_without(folder: Path, *packages: str) -> str:
    """A Python with all packages of this one but some, and without Headrace."""
    venv.create(folder, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for path in {Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")}:
        for entry in path.iterdir():
            own = "headrace" in entry.name or entry.suffix == ".pth"
            if not own and not any(entry.name.lower().startswith(name) for name in packages):
                (site / entry.name).symlink_to(entry)
    python = str(folder / "bin" / "python")
    for name in ("headrace", *packages):
        found = subprocess.run([python, "-I", "-c", f"import {name}"], capture_output=True, text=True, check=False)
        assert f"No module named '{name}'" in found.stderr, f"{name} is there all the same"
    return python


def environment_of_driver() -> dict[str, str]:
    """This process's environment, with its imports at hand and no Python chosen for tasks."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYSPARK", "SPARK")) or key.endswith("OPTS")
    }
    return {**kept, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
