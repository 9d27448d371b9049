"""The choice between tasks that open state files themselves and Spark that carries them; a first look at state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.spark.jobs import Jobs
from headrace.engine.spark.session import tuning_from
from headrace.engine.spark.ship import is_local
from headrace.engine.state.checkpoint import Checkpoint, Manifest
from headrace.engine.state.reach import tasks_reach
from headrace.engine.state.spark_io import SparkIo
from headrace.engine.state.state_io import ArrowIo, StateIo
from headrace.engine.state.storage import is_remote
from headrace.errors import CorruptStateError, EnvironmentProblem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["choose_io", "verify_state"]


def choose_io(spark: SparkSession, checkpoint: Checkpoint, *, reads_only: bool = False) -> StateIo:
    """What the setting says; `auto`: Arrow where all executors reach the checkpoint with it, else Spark.

    Whether they do is tried by writing; who only reads leaves remote checkpoints to Spark.
    """
    choice = tuning_from(spark).state_io
    context, storage = spark.sparkContext, checkpoint.storage
    if choice == "spark" or (reads_only and choice == "auto" and is_remote(storage.root)):
        return SparkIo(spark, checkpoint)
    if reads_only:
        return ArrowIo(spark, checkpoint)
    if choice == "auto" and (is_remote(storage.root) or not is_local(context)):
        fault = tasks_reach(storage, "state", Jobs(context), context.defaultParallelism)
        if fault is not None and not is_remote(storage.root):
            raise EnvironmentProblem(
                f"the executors cannot use the checkpoint {storage.root} of this machine ({fault}); "
                "give a path that all hosts share, or a file system such as hdfs:// or s3a://"
            )
        if fault is not None:
            return SparkIo(spark, checkpoint)
    return ArrowIo(spark, checkpoint)


def verify_state(io: StateIo, manifest: Manifest | None) -> None:
    """Reads all state once before anything runs on it; what is wrong is refused by name."""
    if manifest is None or not manifest.chunks:
        return
    found = io.verify(manifest.chunks)
    if found:
        raise CorruptStateError("; ".join(sorted(found)) + "; restore it, or use a new checkpoint")
