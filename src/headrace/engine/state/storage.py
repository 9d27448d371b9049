"""Small files on any file system: manifests, decisions, the lock. Rows never pass through here."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Protocol

from headrace.engine.spark.session import tuning_from
from headrace.engine.state.hadoop_storage import HadoopStorage
from headrace.engine.state.lease import Holder
from headrace.errors import LockedError

# What file systems say that have no links, or let nobody make any.
_NO_LINKS = frozenset(
    {errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
)
# Locks of the operating system, where it lists them.
_LOCKS = Path("/proc/locks")
# Disks write many files at once sooner than one after the other.
_SYNCS_AT_ONCE = 8

__all__ = [
    "HadoopStorage",
    "Holder",
    "LocalStorage",
    "Lock",
    "Storage",
    "for_spark",
    "is_remote",
    "open_storage",
    "place_of",
]


class Lock(Protocol):
    """The right to be the only writer of a checkpoint; `took_over` if its last owner did not give it back."""

    took_over: bool

    def lost(self, look: bool = False) -> str | None:
        """Why this engine no longer holds it, or None; `look` asks the storage, too."""

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

    def persist(self, paths: Iterable[str]) -> None:
        """Has these files and folders on disk before any file that is created from now on."""

    def persist_all(self, folder: str) -> None:
        """Has all files in a folder, at any depth, on disk before any file that is created from now on."""

    def lock(self, path: str) -> Lock:
        """Takes the lock; LockedError if another engine has it."""

    def holder(self, path: str) -> Holder:
        """Who has the lock, without touching it."""


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
        path = "/" + root.removeprefix("file:").lstrip("/") if root.startswith("file:") else root
        return LocalStorage(path, sync=spark is None or tuning_from(spark).sync)
    if spark is None:
        raise ValueError(f"{root} needs a Spark session to be reached")
    return HadoopStorage(root, spark)


class LocalStorage:
    """Storage on a disk this process can write to.

    With `sync`, a file that is created, and all that was moved or named to `persist` before, is on disk when `create`
    returns, and the file is there only if all the others are: what a commit depends on outlives a loss of power.
    """

    def __init__(self, root: str, sync: bool = True) -> None:
        self.root, self._sync = os.path.abspath(root), sync
        self._logged: dict[str, frozenset[str]] = {}

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
        self._make(target.parent)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                if self._sync:
                    file.flush()
                    os.fsync(file.fileno())
            yield temporary, target
        finally:
            temporary.unlink(missing_ok=True)
        if self._sync:
            _sync(target.parent)

    def create(self, path: str, data: bytes) -> None:
        with self._written(path, data) as (temporary, target):
            if self._sync:
                _UNSETTLED.settle()
            try:
                os.link(temporary, target)
            except FileExistsError:
                raise
            except (OSError, AttributeError) as refused:
                if isinstance(refused, OSError) and refused.errno not in _NO_LINKS:
                    raise
                self._create_without_links(temporary, target)

    def _create_without_links(self, temporary: Path, target: Path) -> None:
        """Renames a file unless another has its name; a lock makes one of looking and renaming."""
        with open(self._path(".creating"), "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if target.exists():
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
            os.rename(temporary, target)

    def replace(self, path: str, data: bytes) -> None:
        with self._written(path, data) as (temporary, target):
            os.replace(temporary, target)

    def move(self, source: str, target: str) -> None:
        self._make(self._path(target).parent)
        os.replace(self._path(source), self._path(target))
        self.persist([target, str(self._path(target).parent)])

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
        self._make(self._path(path))

    def _make(self, folder: Path) -> None:
        missing = [folder]
        while not missing[-1].is_dir():
            missing.append(missing[-1].parent)
        folder.mkdir(parents=True, exist_ok=True)
        if self._sync:
            _UNSETTLED.add(missing[1:])

    def size(self, path: str) -> int | None:
        try:
            return self._path(path).stat().st_size
        except FileNotFoundError:
            return None

    def persist(self, paths: Iterable[str]) -> None:
        if self._sync:
            _UNSETTLED.add(self._path(path) for path in paths)

    def persist_all(self, folder: str) -> None:
        """As the contract says; a file that was seen before is taken to be as it was."""
        found: dict[str, frozenset[str]] = {}
        for place, _, files in os.walk(self._path(folder)) if self._sync else ():
            found[place] = frozenset(files)
            new = found[place] - self._logged.get(place, frozenset())
            _UNSETTLED.add([Path(place, name) for name in new] + ([Path(place)] if new else []))
        self._logged = found

    def lock(self, path: str) -> Lock:
        return _FileLock(self._path(path))

    def holder(self, path: str) -> Holder:
        return _file_holder(self._path(path))


class _Unsettled:
    """Files and folders of this process that must be on disk before the next file is created."""

    def __init__(self) -> None:
        self._paths: set[Path] = set()
        self._lock = threading.Lock()

    def add(self, paths: Iterable[Path]) -> None:
        with self._lock:
            self._paths.update(paths)

    def settle(self) -> None:
        """Forces them to disk, files before the folders that name them; others that want that wait."""
        with self._lock:
            folders = {path for path in self._paths if path.is_dir()}
            files = self._paths - folders
            with ThreadPoolExecutor(_SYNCS_AT_ONCE) as pool:
                list(pool.map(_sync, files))
                list(pool.map(_sync, folders))
            self._paths.clear()


_UNSETTLED = _Unsettled()


def _sync(path: Path) -> None:
    """Forces a file or folder to disk, if it is still there."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as refused:
        # Some file systems cannot sync folders, and need not.
        if refused.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _file_holder(path: Path) -> Holder:
    """Taking the lock to find out would refuse an engine that starts just then: the kernel's list says who has it."""
    try:
        owner, inode = path.read_text().strip() or None, path.stat().st_ino
    except FileNotFoundError:
        return Holder()
    if owner is None:
        return Holder()
    if not owner.endswith(f" on {socket.gethostname()}") or not _LOCKS.exists():
        return Holder(owner, None)
    held = (line.split() for line in _LOCKS.read_text().splitlines() if " FLOCK " in line)
    return Holder(owner, any(words[5].rpartition(":")[2] == str(inode) for words in held))


class _FileLock:
    """A lock of the operating system: gone with its process, however it ends."""

    took_over = False

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
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

    def lost(self, look: bool = False) -> str | None:
        if self._file is None:
            return "this engine gave it back"
        if look:
            try:
                same = os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path))
            except FileNotFoundError:
                same = False
            return None if same else f"somebody removed {self._path}"
        return None

    def release(self) -> None:
        if self._file is not None:
            self._file.truncate(0)
            self._file.close()
            self._file = None
