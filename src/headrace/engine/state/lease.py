"""A lock for file systems without locks: the chain of `policies/lease.py`, kept in a folder and renewed by a thread."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.engine.clocks import steady_s
from headrace.errors import LockedError
from headrace.policies.lease import (
    Added,
    Failed,
    Holding,
    LeaseTimes,
    Link,
    Lost,
    Refuse,
    Take,
    Wait,
    Watch,
    renew,
    stand,
    watch,
)

__all__ = ["Holder", "Lease", "LinkStorage", "newest_link"]

# Whose links vanish while they are read belongs to an engine that renews: its newest is found by looking again.
_LOOKS = 5
# A release does not wait longer than this for a renewal under way.
_RELEASE_S = 10.0


@dataclass(frozen=True)
class Holder:
    """Who holds a lock, or held it last without giving it back; `alive` is None where that cannot be told from here."""

    owner: str | None = None
    alive: bool | None = False


class LinkStorage(Protocol):
    """The part of a Storage that keeps links."""

    root: str

    def read(self, path: str) -> bytes | None: ...
    def create(self, path: str, data: bytes) -> None: ...
    def names(self, folder: str) -> list[str]: ...
    def delete(self, path: str) -> None: ...


class Lease:
    """The right to be the only writer, as long as it is renewed; taken when it is made, or LockedError says why not."""

    def __init__(
        self,
        storage: LinkStorage,
        folder: str,
        times: LeaseTimes,
        clock: Callable[[], float] = steady_s,
        sleep: Callable[[float], None] = time.sleep,
        threads: bool = True,
    ) -> None:
        self._storage, self._folder, self._times, self._clock = storage, folder, times, clock
        self._id = uuid.uuid4().hex
        self._owner = f"process {os.getpid()} on {socket.gethostname()}"
        self._renewing, self._stop = threading.Lock(), threading.Event()
        self.took_over = False
        self._held = self._take(sleep)
        if threads:
            threading.Thread(target=self._keep, daemon=True, name="headrace-lease").start()

    def lost(self, look: bool = False) -> str | None:
        """Why this engine no longer holds it, or None; `look` asks the storage, too."""
        verdict = stand(self._held, self._clock(), self._times)
        if isinstance(verdict, Lost):
            return verdict.reason
        if look:
            try:
                newest = self._newest()
            except Exception:  # storage that does not answer tells nothing: time decides
                return None
            if newest is None or newest.id != self._id:
                return f"{newest.owner if newest else 'somebody'} has taken it over"
        return None

    def release(self) -> None:
        """Gives it back, if it is still held; another may take it at once."""
        self._stop.set()
        if not self._renewing.acquire(timeout=_RELEASE_S):
            return
        held = self.lost() is None
        # Given up before anybody can read that it is: another may take it while the link is still being written.
        self._held = replace(self._held, lost=self._held.lost or Lost("this engine gave it back"))
        try:
            newest = self._newest()
            if held and newest is not None and newest.id == self._id:
                self._create(newest.number + 1, released=True)
        except Exception:  # others wait for its end, as they would after a crash
            pass
        finally:
            self._renewing.release()

    def try_to_renew(self) -> float | None:
        """Adds a link; the seconds until the next should be added, or None if the lease is lost."""
        with self._renewing:
            verdict = stand(self._held, self._clock(), self._times)
            if isinstance(verdict, Lost) or self._stop.is_set():
                return None
            began_s = self._clock()
            self._held = renew(self._held, began_s, self._added(self._held.link + 1))
        verdict = stand(self._held, self._clock(), self._times)
        return None if isinstance(verdict, Lost) else verdict.renew_in_s

    def _keep(self) -> None:
        wait_s: float | None = self._times.renew_s
        while wait_s is not None and not self._stop.wait(wait_s):
            wait_s = self.try_to_renew()

    def _take(self, sleep: Callable[[float], None]) -> Holding:
        seen: Watch | None = None
        began_s: float | None = None
        while True:
            asked_s = self._clock()
            try:
                found = self._newest()
            except Exception:
                # Storage that has answered once may do so again; what was seen of the lease still counts.
                if seen is None or asked_s - seen.since_s > 2 * self._times.lease_s:
                    raise
                sleep(self._times.look_s)
                continue
            if found is not None and found.id == self._id and began_s is not None:
                return Holding(found.number, began_s)
            seen, verdict = watch(seen, found, asked_s, self._clock(), self._times)
            match verdict:
                case Refuse(reason):
                    raise LockedError(
                        f"checkpoint {self._storage.root} is in use by {reason}; stop that run, "
                        "or give this one its own checkpoint"
                    )
                case Wait(seconds):
                    sleep(seconds)
                case Take(number):
                    began_s = self._clock() if began_s is None else began_s
                    self.took_over = found is not None and not found.released
                    match self._added(number):
                        case Added():
                            return Holding(number, began_s)
                        case Failed():
                            sleep(self._times.look_s)
                        case Link():
                            began_s = None

    def _added(self, number: int) -> Added | Failed | Link:
        """Tries to add a link, and looks whether it is the newest then."""
        again = False
        try:
            try:
                self._create(number)
            except FileExistsError:
                again = True
            newest = self._newest()
            if newest is None:
                return Failed("its links are gone")
            if (newest.number, newest.id) != (number, self._id):
                return newest
            for name in self._storage.names(self._folder):
                if name.isdigit() and int(name) < number - 1:
                    self._storage.delete(f"{self._folder}/{name}")
        except Exception as error:  # whatever the storage says: it may work the next time
            return Failed(next(iter(f"{type(error).__name__}: {error}".splitlines())))
        return Added(again)

    def _create(self, number: int, released: bool = False) -> None:
        content = {"id": self._id, "owner": self._owner, "released": released}
        self._storage.create(f"{self._folder}/{number}", json.dumps(content).encode())

    def _newest(self) -> Link | None:
        return newest_link(self._storage, self._folder)


def newest_link(storage: LinkStorage, folder: str) -> Link | None:
    """The last link of a chain, if it has any."""
    for _ in range(_LOOKS):
        numbers = [int(name) for name in storage.names(folder) if name.isdigit()]
        if not numbers:
            return None
        data = storage.read(f"{folder}/{max(numbers)}")
        if data is not None:
            found = json.loads(data)
            return Link(max(numbers), found["id"], found["owner"], found["released"])
    raise OSError(f"the links in {storage.root}/{folder} cannot be read: they vanish")
