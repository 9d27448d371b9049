"""Several sites: one engine each, joined by links. What runs them is in `running`, which needs Spark; this does not."""

from headrace.sites.cut import SitePart, cut, cut_as_placed, parts_to_run, source_at
from headrace.sites.where import Where, where_placed

__all__ = ["SitePart", "Where", "cut", "cut_as_placed", "parts_to_run", "source_at", "where_placed"]
