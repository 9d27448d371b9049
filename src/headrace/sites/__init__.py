"""Several sites: one engine each, joined by links."""

from headrace.sites.cut import SitePart, Where, cut, cut_as_placed, parts_to_run, source_at, where_placed
from headrace.sites.running import SiteRun, ends_of, in_order, run_to_the_end

__all__ = [
    "SitePart",
    "SiteRun",
    "Where",
    "cut",
    "cut_as_placed",
    "ends_of",
    "in_order",
    "parts_to_run",
    "run_to_the_end",
    "source_at",
    "where_placed",
]
