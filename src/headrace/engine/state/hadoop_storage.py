"""Storage on any file system Hadoop knows, through Spark's JVM.

How a file comes to be whole at once, and once only, depends on the file system:

HDFS and what FileContext knows         a temporary file is renamed, which fails if the name is taken, or overwrites
object stores with conditional writes   the file appears when it is closed, unless its name is taken by then
others                                  a look, then a rename: no more exact than the look
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from headrace.engine.state.lease import Holder, Lease, newest_link
from headrace.policies.lease import LeaseTimes

__all__ = ["HadoopStorage"]

# Hadoop's name of conditional writes, as a capability of a path and as an option of a new file.
_CONDITIONAL = "fs.option.create.conditional.overwrite"


class HadoopStorage:
    """A folder of small files on a file system that Hadoop knows."""

    def __init__(self, root: str, spark: Any, lease: LeaseTimes | None = None) -> None:
        self.root = root.rstrip("/")
        self._jvm, self._gateway = spark._jvm, spark.sparkContext._gateway
        self._lease = lease or LeaseTimes()
        self._base = self._jvm.org.apache.hadoop.fs.Path(self.root)
        conf = spark._jsc.hadoopConfiguration()
        self._fs = self._base.getFileSystem(conf)
        self._conditional = bool(self._fs.hasPathCapability(self._base, _CONDITIONAL))
        try:
            self._context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._fs.getUri(), conf)
        except Exception as unknown:
            if _name(unknown) != "UnsupportedFileSystemException":
                raise
            self._context = None

    def _path(self, path: str) -> Any:
        whole = path if "://" in path else f"{self.root}/{path}" if path else self.root
        return self._jvm.org.apache.hadoop.fs.Path(whole)

    def read(self, path: str) -> bytes | None:
        try:
            stream = self._fs.open(self._path(path))
        except Exception as missing:
            if _name(missing) not in ("FileNotFoundException", "NoSuchFileException"):
                raise
            return None
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def _write(self, stream: Any, data: bytes) -> None:
        try:
            stream.write(bytearray(data))
            if stream.hasCapability("hsync"):
                stream.hsync()
        finally:
            stream.close()

    def _temporary(self, path: str, data: bytes) -> Any:
        folder, _, name = path.rpartition("/")
        temporary = self._path(f"{folder}/.{name}.{uuid.uuid4().hex}" if folder else f".{name}.{uuid.uuid4().hex}")
        try:
            self._write(self._fs.create(temporary, False), data)
        except BaseException:
            self._fs.delete(temporary, False)
            raise
        return temporary

    def create(self, path: str, data: bytes) -> None:
        if self._conditional:
            self._create_conditionally(path, data)
            return
        temporary = self._temporary(path, data)
        try:
            self._rename(temporary, path, overwrite=False)
        finally:
            self._fs.delete(temporary, False)

    def _create_conditionally(self, path: str, data: bytes) -> None:
        try:
            builder = self._fs.createFile(self._path(path)).recursive()
            self._write(builder.must(_CONDITIONAL, True).build(), data)
        except Exception as failure:
            # The store may have been asked twice by its client, and have found what the first time left.
            there = self.read(path)
            if there is None:
                raise
            if there != data:
                raise FileExistsError(path) from failure

    def _rename(self, source: Any, path: str, overwrite: bool) -> None:
        """Gives a file another name; FileExistsError if that is taken, unless it is to be overwritten."""
        target = self._path(path)
        if self._context is not None:
            choices = self._jvm.org.apache.hadoop.fs.Options.Rename
            options = self._gateway.new_array(choices, 1)
            options[0] = choices.OVERWRITE if overwrite else choices.NONE
            try:
                self._context.rename(source, target, options)
            except Exception as failure:
                if _name(failure) == "FileAlreadyExistsException":
                    raise FileExistsError(path) from failure
                raise OSError(f"cannot write {path} under {self.root}: {_message(failure)}") from failure
            return
        if overwrite:
            self._fs.delete(target, False)
        elif self._fs.exists(target):
            raise FileExistsError(path)
        if not self._fs.rename(source, target):
            if not overwrite and self._fs.exists(target):
                raise FileExistsError(path)
            raise OSError(f"cannot write {path} under {self.root}")

    def replace(self, path: str, data: bytes) -> None:
        if self._conditional:
            self._write(self._fs.create(self._path(path), True), data)
            return
        temporary = self._temporary(path, data)
        try:
            self._rename(temporary, path, overwrite=True)
        finally:
            self._fs.delete(temporary, False)

    def move(self, source: str, target: str) -> None:
        self._fs.mkdirs(self._path(target).getParent())
        if not self._fs.exists(self._path(source)):
            raise FileNotFoundError(f"{self.root}/{source}")
        self._rename(self._path(source), target, overwrite=True)

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

    def persist(self, paths: Iterable[str]) -> None:
        """Nothing: these file systems keep what was closed."""

    def persist_all(self, folder: str) -> None:
        """Nothing: these file systems keep what was closed."""

    def holder(self, path: str) -> Holder:
        newest = newest_link(self, f"{path}.links")
        if newest is None or newest.released:
            return Holder()
        # Whether its owner still renews it takes as long to tell as a start would wait.
        return Holder(newest.owner, None)

    def lock(self, path: str) -> Lease:
        return Lease(self, f"{path}.links", self._lease)


def _name(failure: Exception) -> str:
    """The name of the Java exception behind a failure, or of the failure itself."""
    java = getattr(failure, "java_exception", None)
    return type(failure).__name__ if java is None else str(java.getClass().getSimpleName())


def _message(failure: Exception) -> str:
    java = getattr(failure, "java_exception", None)
    return str(failure if java is None else java.getMessage())
