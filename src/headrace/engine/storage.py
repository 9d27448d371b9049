"""Small files on any file system: manifests, decisions, the lock. Rows never pass through here."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from headrace.errors import LockedError

__all__ = ["HadoopStorage", "LocalStorage", "Lock", "Storage", "for_spark", "is_remote", "open_storage", "place_of"]

# A lease that has not been renewed for this long belongs to an engine that is gone.
LEASE_S = 60.0


class Lock(Protocol):
    """The right to be the only writer of a checkpoint."""

    def held(self) -> bool:
        """Whether this engine still holds it."""

    def release(self) -> None:
        """Gives it back."""


class Storage(Protocol):
    """A folder of small files; paths are relative to `root`, with forward slashes, or whole, in its file system."""

    root: str

    def read(self, path: str) -> bytes | None:
        """The content of a file, or None if there is none."""

    def create(self, path: str, data: bytes) -> None:
        """Writes a whole file at once; FileExistsError if it is there already."""

    def replace(self, path: str, data: bytes) -> None:
        """Writes a whole file at once, in place of any other."""

    def move(self, source: str, target: str) -> None:
        """Renames a file, in place of any other of that name."""

    def names(self, folder: str) -> list[str]:
        """Names of the files and folders in a folder, sorted; none if it does not exist."""

    def delete(self, path: str) -> None:
        """Removes a file or a folder and all in it, if it is there."""

    def make_folder(self, path: str) -> None:
        """Makes a folder and those above it."""

    def size(self, path: str) -> int | None:
        """Bytes of a file, or None if there is none."""

    def lock(self, path: str) -> Lock:
        """Takes the lock; LockedError if another engine has it."""


def is_remote(root: str) -> bool:
    """Whether a path needs Spark to be reached.

    >>> is_remote("s3a://bucket/state"), is_remote("file:/state"), is_remote("state")
    (True, False, False)
    """
    return "://" in root and not root.startswith("file:")


def place_of(root: str) -> str:
    """The file system of a path: within one, files can be renamed.

    >>> place_of("hdfs://host:9000/state"), place_of("file:/state"), place_of("/state")
    ('hdfs://host:9000', '', '')
    """
    if not is_remote(root):
        return ""
    scheme, _, rest = root.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def for_spark(root: str) -> str:
    """A storage's root as Spark is to be told it, whatever its default file system is.

    >>> for_spark("/state"), for_spark("hdfs://host/state")
    ('file:///state', 'hdfs://host/state')
    """
    return root if is_remote(root) else f"file://{root}"


def open_storage(root: str, spark: Any = None) -> Storage:
    """Storage for a path or URI: plain files where possible, else any file system Spark's Hadoop can reach.

    A path without a scheme belongs to Hadoop's default file system, as everywhere in Spark.
    """
    if spark is not None and "://" not in root and not root.startswith("file:"):
        default = spark._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
        if is_remote(default):
            root = place_of(default) + os.path.abspath(root)
    if not is_remote(root):
        return LocalStorage("/" + root.removeprefix("file:").lstrip("/") if root.startswith("file:") else root)
    if spark is None:
        raise ValueError(f"{root} needs a Spark session to be reached")
    return HadoopStorage(root, spark)


class LocalStorage:
    """Storage on a disk this process can write to."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def _path(self, path: str) -> Path:
        return Path(self.root, path)

    def read(self, path: str) -> bytes | None:
        try:
            return self._path(path).read_bytes()
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        target = self._path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            temporary.write_bytes(data)
            yield temporary, target
        finally:
            temporary.unlink(missing_ok=True)

    def create(self, path: str, data: bytes) -> None:
        with self._written(path, data) as (temporary, target):
            os.link(temporary, target)

    def replace(self, path: str, data: bytes) -> None:
        with self._written(path, data) as (temporary, target):
            os.replace(temporary, target)

    def move(self, source: str, target: str) -> None:
        self._path(target).parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._path(source), self._path(target))

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(folder)))
        except FileNotFoundError:
            return []

    def delete(self, path: str) -> None:
        target = self._path(path)
        if target.is_dir():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def make_folder(self, path: str) -> None:
        self._path(path).mkdir(parents=True, exist_ok=True)

    def size(self, path: str) -> int | None:
        try:
            return self._path(path).stat().st_size
        except FileNotFoundError:
            return None

    def lock(self, path: str) -> Lock:
        return _FileLock(self._path(path))


class _FileLock:
    """A lock of the operating system: gone with its process, however it ends."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] | None = open(path, "a+")  # noqa: SIM115 - held as long as the lock
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            self._file.seek(0)
            owner = self._file.read().strip() or "another engine"
            self._file.close()
            raise LockedError(
                f"checkpoint {path.parent} is in use by {owner}; stop that run, or give this one its own checkpoint"
            ) from exc
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}")
        self._file.flush()

    def held(self) -> bool:
        return self._file is not None

    def release(self) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None


class HadoopStorage:
    """Storage on any file system Hadoop knows, through Spark's JVM."""

    def __init__(self, root: str, spark: Any) -> None:
        self.root = root.rstrip("/")
        self._jvm = spark._jvm
        self._base = self._jvm.org.apache.hadoop.fs.Path(self.root)
        self._fs = self._base.getFileSystem(spark._jsc.hadoopConfiguration())

    def _path(self, path: str) -> Any:
        whole = path if "://" in path else f"{self.root}/{path}" if path else self.root
        return self._jvm.org.apache.hadoop.fs.Path(whole)

    def read(self, path: str) -> bytes | None:
        target = self._path(path)
        if not self._fs.exists(target):
            return None
        stream = self._fs.open(target)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _temporary(self, path: str, data: bytes) -> Any:
        folder, _, name = path.rpartition("/")
        temporary = self._path(f"{folder}/.{name}.{uuid.uuid4().hex}" if folder else f".{name}.{uuid.uuid4().hex}")
        stream = self._fs.create(temporary, False)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        return temporary

    def create(self, path: str, data: bytes) -> None:
        target = self._path(path)
        temporary = self._temporary(path, data)
        if self._fs.exists(target) or not self._fs.rename(temporary, target):
            self._fs.delete(temporary, False)
            raise FileExistsError(path)

    def replace(self, path: str, data: bytes) -> None:
        temporary = self._temporary(path, data)
        self._fs.delete(self._path(path), False)
        self._fs.rename(temporary, self._path(path))

    def move(self, source: str, target: str) -> None:
        end = self._path(target)
        self._fs.mkdirs(end.getParent())
        if not self._fs.exists(self._path(source)):
            raise FileNotFoundError(f"{self.root}/{source}")
        self._fs.delete(end, False)
        if not self._fs.rename(self._path(source), end):
            raise OSError(f"cannot move {source} to {target} under {self.root}")

    def names(self, folder: str) -> list[str]:
        target = self._path(folder)
        if not self._fs.exists(target):
            return []
        return sorted(status.getPath().getName() for status in self._fs.listStatus(target))

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def make_folder(self, path: str) -> None:
        self._fs.mkdirs(self._path(path))

    def size(self, path: str) -> int | None:
        target = self._path(path)
        return int(self._fs.getFileStatus(target).getLen()) if self._fs.exists(target) else None

    def lock(self, path: str) -> Lock:
        return _Lease(self, path)


class _Lease:
    """A lock for file systems without locks: a file its owner renews, taken over when it is old.

    Two engines that still write at the same time are told apart by the manifest, which can be created once only.
    """

    def __init__(self, storage: HadoopStorage, path: str) -> None:
        self._storage, self._path_ = storage, path
        self._id = uuid.uuid4().hex
        self._stop = threading.Event()
        found = self._read()
        if found is not None and time.time() - found["renewed"] < LEASE_S:
            raise LockedError(
                f"checkpoint {storage.root} is in use by {found['owner']}, "
                f"renewed {time.time() - found['renewed']:.0f} s ago; "
                f"stop that run, or wait {LEASE_S:.0f} s if it is gone"
            )
        if found is not None:
            storage.delete(path)
        try:
            storage.create(path, self._content())
        except FileExistsError as exc:
            raise LockedError(f"checkpoint {storage.root} was just taken by another engine") from exc
        threading.Thread(target=self._renew, daemon=True, name="headrace-lease").start()

    def _content(self) -> bytes:
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        return json.dumps({"id": self._id, "owner": owner, "renewed": time.time()}).encode()

    def _read(self) -> dict[str, Any] | None:
        data = self._storage.read(self._path_)
        return json.loads(data) if data else None

    def _renew(self) -> None:
        while not self._stop.wait(LEASE_S / 6):
            if not self.held():
                return
            self._storage.replace(self._path_, self._content())

    def held(self) -> bool:
        found = self._read()
        return found is not None and found["id"] == self._id

    def release(self) -> None:
        self._stop.set()
        if self.held():
            self._storage.delete(self._path_)
