"""Several sites: one engine each, joined by links."""

from headrace.sites.cut import SitePart, Where, cut, cut_as_placed, where_placed

__all__ = ["SitePart", "Where", "cut", "cut_as_placed", "where_placed"]
