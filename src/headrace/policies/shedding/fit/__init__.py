"""Feasible input tables (strategy `fit`): every place tells its parents what it can take, and what that is worth.

build.py        the table of one place; merge_by_price.py and merge_by_level.py thin the product of the children
propagate.py    the tables of a network, from the leaves upstream, and their update
look_up.py      from arriving rates to what a place keeps
shares.py       parts of a table for several parents, who find them in agree.py
fallback.py     what a parent plans with while a child's table is stale or missing
bound.py        how much more could be had where places have several parents
"""

from headrace.policies.shedding.fit.agree import Agreement, agree_on_shares
from headrace.policies.shedding.fit.bound import bound_worth, share_prices
from headrace.policies.shedding.fit.build import Prepared, TableSettings, build_table
from headrace.policies.shedding.fit.fallback import Assumed, Received, assume
from headrace.policies.shedding.fit.grid import Grid, spread_by_error, spread_by_size
from headrace.policies.shedding.fit.look_up import Entry, EntryIndex, best_entry, index_entries, look_up
from headrace.policies.shedding.fit.propagate import Tables, Terms, build_tables, plan_by_tables, update_tables
from headrace.policies.shedding.fit.shares import cap_table, grant, share_of
from headrace.policies.shedding.fit.table import Table

__all__ = [
    "Agreement",
    "Assumed",
    "Entry",
    "EntryIndex",
    "Grid",
    "Prepared",
    "Received",
    "Table",
    "TableSettings",
    "Tables",
    "Terms",
    "agree_on_shares",
    "assume",
    "best_entry",
    "bound_worth",
    "build_table",
    "build_tables",
    "cap_table",
    "grant",
    "index_entries",
    "look_up",
    "plan_by_tables",
    "share_of",
    "share_prices",
    "spread_by_error",
    "spread_by_size",
    "update_tables",
]
