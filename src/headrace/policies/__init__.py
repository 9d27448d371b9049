"""Pure policies: numbers in, decisions out; no Spark, no clock, no files."""

from headrace.policies.compaction import ChunkSize, Merge, NoMerge, plan_merge
from headrace.policies.due import Due, due_windows, last_end_with_rows
from headrace.policies.watermark import StreamClock, advance_clock, find_idle, follow_others, watermark_of

__all__ = [
    "ChunkSize",
    "Due",
    "Merge",
    "NoMerge",
    "StreamClock",
    "advance_clock",
    "due_windows",
    "find_idle",
    "follow_others",
    "last_end_with_rows",
    "plan_merge",
    "watermark_of",
]
