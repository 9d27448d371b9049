"""Several sites: one engine each, joined by links."""

from headrace.sites.cut import SitePart, cut, cut_as_placed, parts_to_run, source_at
from headrace.sites.running import SiteRun, ends_of, in_order, is_sent_more, run_to_the_end
from headrace.sites.where import Where, where_placed

__all__ = [
    "SitePart",
    "SiteRun",
    "Where",
    "cut",
    "cut_as_placed",
    "ends_of",
    "in_order",
    "is_sent_more",
    "parts_to_run",
    "run_to_the_end",
    "source_at",
    "where_placed",
]
