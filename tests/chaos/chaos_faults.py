"""Faults as a driver does them to itself: at the points of an epoch, in its storage, to its processes and its clock.

Every fault notes in the journal that it has happened, before it does where it cannot afterwards.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from chaos_plan import LIFE_S, STEP_S, Act, Fault
from chaos_world import SECOND, START, Journal

# What a disk holds back when it is filled: nothing.
BALLAST = "ballast"
MUTATING = ("create", "replace", "move", "delete", "make_folder")
OPERATIONS = (*MUTATING, "read", "names", "size")


class Faults:
    """The faults of one act, armed; `probe` and `clocks` go into the engine's hooks."""

    def __init__(
        self, act: Act, life: int, number: int, disk: Path, journal: Journal, rival: Callable[[], str]
    ) -> None:
        self._life = life
        self._act, self._number, self._disk, self._journal, self._rival = act, number, disk, journal, rival
        self._rng = random.Random(f"{number} {act.first}")
        self._passed: dict[str, int] = {}
        self._pending = dict(enumerate(act.faults))
        self._threads: list[threading.Thread] = []
        self._looks = 0
        self.committed = -1  # the last epoch that is; the driver keeps it
        self.storage: StorageFault | None = None
        self.real_disk = os.path.ismount(disk)

    def begin(self) -> None:
        """Arms what does not wait for a point."""
        for number, fault in list(self._pending.items()):
            if fault.kind == "kill driver" and not fault.point:
                self._later(fault.seconds, lambda n=number, f=fault: self._do(n, f))

    def end(self) -> None:
        """A kill that has found no moment in its act comes now; what was begun is waited for."""
        for number, fault in list(self._pending.items()):
            if fault.kind == "kill driver":
                self._do(number, fault)
        for thread in self._threads:
            thread.join()
        (self._disk / BALLAST).unlink(missing_ok=True)
        self.storage = None

    def clocks(self) -> Any:
        """Clocks that follow the epochs; the wall clock is set after the first look of the run, and stays so."""
        from headrace.policies import Reading

        now_us = START + ((self.committed + 2) * STEP_S + self._life * LIFE_S) * SECOND
        self._looks += 1
        set_by = 0.0 if self._looks == 1 else sum(f.seconds for f in self._act.faults if f.kind == "clock")
        for number, fault in list(self._pending.items()):
            if fault.kind == "clock" and self._looks > 1:
                self._fired(number, fault)
        return Reading(now_us + round(set_by * SECOND), now_us, now_us)

    def probe(self, point: str) -> None:
        passed = self._passed.get(point, 0)
        self._passed[point] = passed + 1
        for number, fault in list(self._pending.items()):
            if (fault.point, fault.nth) == (point, passed):
                self._do(number, fault)

    def _fired(self, number: int, fault: Fault, **facts: Any) -> None:
        self._pending.pop(number, None)
        self._journal.note("fired", act=self._number, fault=number, kind=fault.kind, **facts)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        def wait() -> None:
            time.sleep(seconds)
            what()

        self._threads.append(threading.Thread(target=wait, daemon=True))
        self._threads[-1].start()

    def _do(self, number: int, fault: Fault) -> None:
        match fault.kind:
            case "kill driver":
                self._fired(number, fault)
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill worker":
                self._pending.pop(number)
                self._later(fault.seconds, lambda: self._fired(number, fault, pid=self._kill(_workers)))
            case "kill executor":
                self._pending.pop(number)
                self._later(fault.seconds, lambda: self._fired(number, fault, pid=self._kill(_executors)))
            case "stop":
                self._pending.pop(number)
                self._stop(number, fault)
            case "storage error":
                self._pending.pop(number)
                self.storage = StorageFault(fault.operation, fault.after, errno.EIO, False,
                                            lambda done: self._fired(number, fault, operation=done))  # fmt: skip
            case "full disk":
                self._pending.pop(number)
                self._fill(number, fault)
            case "rival":
                answer = list[str]()
                thread = threading.Thread(target=lambda: answer.append(self._rival()))
                thread.start()
                thread.join()
                self._fired(number, fault, answer=answer[0])
            case other:
                raise AssertionError(f"nobody knows how to do '{other}'")

    def _kill(self, find: Callable[[], list[psutil.Process]]) -> int:
        """Kills one of the processes, which may have to be born first."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = find()
            if found:
                victim = self._rng.choice(found)
                with contextlib.suppress(psutil.NoSuchProcess):
                    victim.kill()
                    return int(victim.pid)
            time.sleep(0.01)
        return 0

    def _stop(self, number: int, fault: Fault) -> None:
        if fault.target == "worker":

            def pause() -> None:
                for worker in _workers():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        worker.suspend()
                time.sleep(fault.seconds)
                for worker in _workers():
                    with contextlib.suppress(psutil.NoSuchProcess):
                        worker.resume()
                self._fired(number, fault)

            self._later(0, pause)
            return
        # Driver and JVM are one group; whoever wakes them must not be in it.
        group = os.getpgid(0)
        command = f"kill -STOP -{group}; sleep {fault.seconds:.2f}; kill -CONT -{group}"
        helper = subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True)
        helper.wait()
        self._fired(number, fault)

    def _fill(self, number: int, fault: Fault) -> None:
        if not self.real_disk:
            told = "as told by the storage"
            self.storage = StorageFault(0, False, errno.ENOSPC, True, lambda done: self._fired(number, fault, how=told))
            return
        # Without a buffer: closing a file that holds some back would fail, too.
        with (self._disk / BALLAST).open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(1 << 16)):
                pass
        self._fired(number, fault, how="a full file system")


def _workers() -> list[psutil.Process]:
    """Spark's Python workers: what its daemons have forked, below this driver or below its executors elsewhere."""
    found = []
    for process in _below([psutil.Process(), *_executors()]):
        with contextlib.suppress(psutil.Error):
            parent = process.parent()
            words = " ".join(process.cmdline())
            if "pyspark.daemon" in words and parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()):
                found.append(process)
    return found


def _below(families: list[psutil.Process]) -> list[psutil.Process]:
    """All descendants of some processes, of which one may just be ending."""
    found = []
    for process in families:
        with contextlib.suppress(psutil.Error):
            found += process.children(recursive=True)
    return found


def _executors() -> list[psutil.Process]:
    """Executors of this driver's application, wherever on this machine they are."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    application, found = session.sparkContext.applicationId, []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if application in words and any("CoarseGrainedExecutorBackend" in word for word in words):
                found.append(process)
    return found


class StorageFault:
    """Fails one operation, or from then on every one that writes; thread-safe, since sinks and leases have threads."""

    def __init__(self, wait: int, after: bool, number: int, lasting: bool, fired: Callable[[str], None]) -> None:
        self._wait, self._after, self._number, self._lasting, self._fired = wait, after, number, lasting, fired
        self._lock, self._done = threading.Lock(), False

    @contextlib.contextmanager
    def around(self, operation: str, path: str) -> Iterator[None]:
        """Fails in the place of the operation, or after it; operations within this one are not counted."""
        due = self._due(operation)
        if due:
            self._fired(f"{operation} {path}")
        if due and not self._after:
            raise OSError(self._number, os.strerror(self._number), path)
        yield
        if due:
            raise OSError(self._number, os.strerror(self._number), path)

    def _due(self, operation: str) -> bool:
        with self._lock:
            if self._lasting:
                first, self._done = not self._done and operation in MUTATING, self._done or operation in MUTATING
                if first:
                    return True
                if operation in MUTATING and self._done:
                    raise OSError(self._number, os.strerror(self._number))
                return False
            if self._done:
                return False
            self._wait -= 1
            self._done = self._wait < 0
            return self._done


def make_storage_fail(current: Callable[[], StorageFault | None]) -> None:
    """Has every storage that the engine opens from now on ask for the fault that is due."""
    from headrace.engine import assemble
    from headrace.engine.sinks import choose as sinks
    from headrace.engine.state import storage as module

    open_storage = module.open_storage

    def opened(*arguments: Any, **options: Any) -> Any:
        made = open_storage(*arguments, **options)
        methods = {name: _failing(getattr(type(made), name), name, current) for name in OPERATIONS}
        # A class of its own under the class it had: the engine asks what kind of storage it has.
        made.__class__ = type(type(made).__name__, (type(made),), methods)
        return made

    assemble.open_storage = opened
    sinks.open_storage = opened


def _failing(method: Callable[..., Any], name: str, current: Callable[[], StorageFault | None]) -> Callable[..., Any]:
    depth = threading.local()

    def call(self: Any, path: str, *arguments: Any) -> Any:
        fault = current()
        if fault is None or getattr(depth, "within", False):
            return method(self, path, *arguments)
        depth.within = True
        try:
            with fault.around(name, path):
                return method(self, path, *arguments)
        finally:
            depth.within = False

    return call
