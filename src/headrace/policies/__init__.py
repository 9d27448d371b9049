"""Pure policies: numbers in, decisions out; no Spark, no clock, no files."""

from headrace.policies.clock import EpochTime, Reading, tell_time
from headrace.policies.compaction import ChunkSize, Merge, NoMerge, plan_merge
from headrace.policies.intake import FIRST_INTAKE, REMEMBERED, UNPACED_S, Taken, is_full, plan_intake, share_of
from headrace.policies.joins.diffusion import (
    JoinStats,
    Load,
    SideStats,
    choose_way,
    learn_speeds,
    load_of,
    spread_slices,
)
from headrace.policies.joins.hosts import JoinDemand, choose_hosts
from headrace.policies.keyed.decide import (
    FluxSettings,
    KeyedEpoch,
    account,
    begin,
    decide_keyed,
)
from headrace.policies.keyed.flux import (
    BinLoad,
    FluxLimits,
    MiniLoad,
    after_moves,
    hybrid,
    load,
    memory,
    planned_ahead,
    within,
)
from headrace.policies.keyed.hot import find_hot, isolate, split
from headrace.policies.keyed.rounds import bins_of, next_collection_s, next_round, utilisation
from headrace.policies.keyed.spill import reside
from headrace.policies.patience import Patience
from headrace.policies.refresh import RETRY_US, Current, Read, decide_refresh
from headrace.policies.schedule.costs import CostModel, CostSample, learn
from headrace.policies.schedule.due import due_windows, last_end_with_rows, newest_end, settled_until
from headrace.policies.schedule.executions import (
    Advance,
    Execution,
    Left,
    Plan,
    ScheduleState,
    Served,
    TaskState,
    enter,
    plan_epoch,
)
from headrace.policies.schedule.groups import Costs, Group, SchedulePolicy, SubGroup
from headrace.policies.schedule.periods import PeriodChoice, choose_periods, cost_per_pane
from headrace.policies.tuning import PATIENCE, SETTINGS, Tuning, tuning_of
from headrace.policies.watermark import StreamClock, advance_clock, find_idle, follow_others, ran_ahead, watermark_of

__all__ = [
    "FIRST_INTAKE",
    "PATIENCE",
    "REMEMBERED",
    "RETRY_US",
    "SETTINGS",
    "UNPACED_S",
    "Advance",
    "BinLoad",
    "ChunkSize",
    "CostModel",
    "CostSample",
    "Costs",
    "Current",
    "EpochTime",
    "Execution",
    "FluxLimits",
    "FluxSettings",
    "Group",
    "JoinDemand",
    "JoinStats",
    "KeyedEpoch",
    "Left",
    "Load",
    "Merge",
    "MiniLoad",
    "NoMerge",
    "Patience",
    "PeriodChoice",
    "Plan",
    "Read",
    "Reading",
    "SchedulePolicy",
    "ScheduleState",
    "Served",
    "SideStats",
    "StreamClock",
    "SubGroup",
    "Taken",
    "TaskState",
    "Tuning",
    "account",
    "advance_clock",
    "after_moves",
    "begin",
    "bins_of",
    "choose_hosts",
    "choose_periods",
    "choose_way",
    "cost_per_pane",
    "decide_keyed",
    "decide_refresh",
    "due_windows",
    "enter",
    "find_hot",
    "find_idle",
    "follow_others",
    "hybrid",
    "is_full",
    "isolate",
    "last_end_with_rows",
    "learn",
    "learn_speeds",
    "load",
    "load_of",
    "memory",
    "newest_end",
    "next_collection_s",
    "next_round",
    "plan_epoch",
    "plan_intake",
    "plan_merge",
    "planned_ahead",
    "ran_ahead",
    "reside",
    "settled_until",
    "share_of",
    "split",
    "spread_slices",
    "tell_time",
    "tuning_of",
    "utilisation",
    "watermark_of",
    "within",
]
