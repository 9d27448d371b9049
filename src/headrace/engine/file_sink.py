"""Results as files in a folder, an epoch's under its own names."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.engine.storage import Storage, for_spark
from headrace.model import SinkSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["STAGING", "FileSink"]

STAGING = "_staging"


class FileSink:
    """Files in a folder, named after the epoch; what is being written lies in a folder readers pass over."""

    def __init__(self, spec: SinkSpec, storage: Storage) -> None:
        self.format, self.options, self.storage = spec.format, dict(spec.options), storage
        self.staged = STAGING  # within the folder

    @property
    def staging(self) -> str:
        """Where tasks put files until the epoch takes them over."""
        return f"{self.storage.root}/{self.staged}"

    def adopt(self, files: list[str], epoch: int, replay: bool) -> None:
        """Makes staged files the results of the epoch, in place of any earlier ones."""
        if replay:
            for name in self.storage.names(""):
                if name.startswith(f"epoch-{epoch:09d}-"):
                    self.storage.delete(name)
        for i, file in enumerate(files):
            suffix = file.rpartition("/")[2].partition(".")[2]
            self.storage.move(f"{self.staged}/{file}", f"epoch-{epoch:09d}-{i:03d}.{suffix}")

    def write(self, results: DataFrame, epoch: int, replay: bool) -> int | None:
        folder = uuid4().hex
        try:
            rows = nullable(results)
            rows.write.format(self.format).options(**self.options).save(f"{for_spark(self.staging)}/{folder}")
            names = self.storage.names(f"{self.staged}/{folder}")
            self.adopt([f"{folder}/{name}" for name in names if name.startswith("part-")], epoch, replay)
        finally:
            self.storage.delete(f"{self.staged}/{folder}")
        return None

    def clear(self) -> None:
        """Removes what attempts have left that did not come to their end; nobody must be writing."""
        self.storage.delete(self.staged)


def nullable(results: DataFrame) -> DataFrame:
    """The same rows under a schema that lets every column be NULL: what Spark can prove of an expression may differ
    from one plan to the next, and the files of a query have one schema."""
    from pyspark.sql import DataFrame

    session = results.sparkSession
    rows, schema = results._jdf.queryExecution().toRdd(), results._jdf.schema().asNullable()
    return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, schema, False), session)
