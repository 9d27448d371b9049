"""The epoch engine: the only part that imports pyspark."""

from headrace.engine.ask import ask_checkpoint
from headrace.engine.assemble import start
from headrace.engine.run import Run
from headrace.engine.sources.selecting import judge_select
from headrace.engine.sources.tables import read_table
from headrace.engine.spark.connectors import session_settings
from headrace.engine.spark.judge import judge
from headrace.engine.spark.session import build_session
from headrace.engine.state.checkpoint import Manifest
from headrace.engine.watch.hooks import Hooks
from headrace.engine.watch.status import checkpoints_in, describe, describe_checkpoint

__all__ = [
    "Hooks",
    "Manifest",
    "Run",
    "ask_checkpoint",
    "build_session",
    "checkpoints_in",
    "describe",
    "describe_checkpoint",
    "judge",
    "judge_select",
    "read_table",
    "session_settings",
    "start",
]
