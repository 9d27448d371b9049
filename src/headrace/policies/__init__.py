"""Pure policies: numbers in, decisions out; no Spark, no clock, no files."""

from headrace.policies.compaction import ChunkSize, Merge, NoMerge, plan_merge
from headrace.policies.costs import CostModel, CostSample, learn
from headrace.policies.due import Due, due_windows, last_end_with_rows, newest_end
from headrace.policies.groups import Costs, Group, SchedulePolicy, SubGroup
from headrace.policies.periods import PeriodChoice, choose_periods, cost_per_pane
from headrace.policies.schedule import (
    Execution,
    Left,
    Plan,
    Progress,
    Run,
    ScheduleState,
    TaskState,
    enter,
    plan_epoch,
)
from headrace.policies.watermark import StreamClock, advance_clock, find_idle, follow_others, watermark_of

__all__ = [
    "ChunkSize",
    "CostModel",
    "CostSample",
    "Costs",
    "Due",
    "Execution",
    "Group",
    "Left",
    "Merge",
    "NoMerge",
    "PeriodChoice",
    "Plan",
    "Progress",
    "Run",
    "SchedulePolicy",
    "ScheduleState",
    "StreamClock",
    "SubGroup",
    "TaskState",
    "advance_clock",
    "choose_periods",
    "cost_per_pane",
    "due_windows",
    "enter",
    "find_idle",
    "follow_others",
    "last_end_with_rows",
    "learn",
    "newest_end",
    "plan_epoch",
    "plan_merge",
    "watermark_of",
]
