"""What a soak sees of an engine from outside: memory, descriptors and threads by kind of process, files and bytes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.bench.measure import descendants

__all__ = ["LiveHeap", "Sample", "folder_size", "last_epoch", "look"]

_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """One look; megabytes are resident memory of no file unless a name says otherwise, NaN is what could not be had."""

    at_s: float
    epoch: int
    epoch_s: float  # median seconds of the epochs whose manifests are there, from 0
    queries: int  # guests there are
    driver_mb: float
    jvm_mb: float
    heap_mb: float  # of objects that live in the JVM after a full collection
    metaspace_mb: float
    code_mb: float  # of compiled code; the JVM's own bound on it is 240 MB
    workers_mb: float
    workers: int
    driver_fds: int
    jvm_fds: int
    driver_threads: int
    jvm_threads: int
    state_files: int
    state_mb: float
    source_log_mb: float  # Spark's list of the files it has read: one line for each, for ever
    sink_files: int
    sink_mb: float


class LiveHeap:
    """How much of a JVM's heap is in use, seen after a full collection every so often; NaN without a JDK."""

    def __init__(self, engine: int, every_s: float) -> None:
        self._engine, self._every_s, self._asked_s = engine, every_s, -math.inf
        self._tool = shutil.which("jcmd")
        self.heap_mb = self.metaspace_mb = self.code_mb = math.nan

    def see(self, jvm: int) -> None:
        """Collects and looks, if it is time again."""
        if self._tool is None or time.monotonic() - self._asked_s < self._every_s:
            return
        self._asked_s = time.monotonic()
        # The histogram is taken in the same pause as the collection: nothing that lives for an epoch only is in it.
        found = re.search(r"^Total +\d+ +(\d+)", self._ask(jvm, "GC.class_histogram"), re.MULTILINE)
        if found:
            self.heap_mb = int(found[1]) / _MB
        text = self._ask(jvm, "GC.heap_info")
        meta = re.search(r"Metaspace +used (\d+)K", text)
        if meta:
            self.metaspace_mb = int(meta[1]) * 1024 / _MB
        code = [int(kilobytes) for kilobytes in re.findall(r"\bused=(\d+)Kb", self._ask(jvm, "Compiler.codecache"))]
        if code:
            self.code_mb = sum(code) * 1024 / _MB

    def _ask(self, jvm: int, what: str) -> str:
        assert self._tool is not None
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            done = subprocess.run([self._tool, str(jvm), what], capture_output=True, text=True, timeout=60, check=False)
            return done.stdout
        return ""


def look(engine: int, home: Path, at_s: float, queries: int, heap: LiveHeap) -> Sample:
    """One look at an engine that runs in `home`."""
    under = descendants(engine)
    names = {pid: _name(pid) for pid in under}
    jvms = [pid for pid in under if names[pid] == "java"]
    workers = [pid for pid in under if names[pid].startswith("python")]
    if jvms:
        heap.see(jvms[0])
    state, sources = folder_size(home / "state"), folder_size(home / "state" / "spark" / "sources")
    sinks = folder_size(home / "out")
    return Sample(
        round(at_s, 1),
        last_epoch(home / "state"),
        _epoch_seconds(home / "state"),
        queries,
        _resident_mb([engine]),
        _resident_mb(jvms),
        heap.heap_mb,
        heap.metaspace_mb,
        heap.code_mb,
        _resident_mb(workers),
        len(workers),
        _descriptors([engine]),
        _descriptors(jvms),
        _threads([engine]),
        _threads(jvms),
        state[0] - sources[0],
        (state[1] - sources[1]) / _MB,
        sources[1] / _MB,
        sinks[0],
        sinks[1] / _MB,
    )


def last_epoch(state: Path) -> int:
    """The last committed epoch of a checkpoint; -1 before the first."""
    found = (path.stem for path in (state / "manifests").glob("*.json"))
    return max((int(stem) for stem in found if stem.isdigit()), default=-1)


def folder_size(folder: Path) -> tuple[int, int]:
    """Files under a folder, and their bytes."""
    files = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            # A file that goes while it is looked at does not count.
            with contextlib.suppress(OSError):
                size += os.stat(os.path.join(place, name)).st_size
                files += 1
    return files, size


def _epoch_seconds(state: Path) -> float:
    """The median over the last epochs."""
    found = []
    for path in (state / "manifests").glob("[0-9]*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            found.append(float(json.loads(path.read_bytes().partition(b"\n")[2])["observed"]["seconds"]))
    return sorted(found)[len(found) // 2] if found else math.nan


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _resident_mb(pids: list[int]) -> float:
    """Memory of processes; what several share (workers are forks) counts in parts, so that the sum is true.

    Pages of files are left out: they are the kernel's to drop, and a process's part in those of a library grows
    whenever another process that maps the library ends.
    """
    return sum(_own_kb(pid) for pid in pids) * 1024 / _MB


def _own_kb(pid: int) -> int:
    for file, fields in (("smaps_rollup", ("Pss_Anon:", "Pss_Shmem:")), ("status", ("RssAnon:", "RssShmem:"))):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
            found = [int(line.split()[1]) for line in lines if line.startswith(fields)]
            if found:
                return sum(found)
    return 0


def _descriptors(pids: list[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/fd"))
    return count


def _threads(pids: list[int]) -> int:
    count = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{pid}/task"))
    return count
