"""The nearest known name to a mistaken one."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["listing", "nearest"]

# A message lists this many alternatives; more than a line of them helps nobody.
MOST_LISTED = 12


def listing(known: Iterable[str]) -> str:
    """Names separated by commas, the rest counted.

    >>> listing(["a", "b"])
    'a, b'
    """
    names = list(known)
    rest = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """A hint that names the nearest known name and the alternatives; None when nothing is known.

    >>> nearest("pirce", ["price", "qty"])
    "did you mean 'price'? (price, qty)"
    >>> nearest("zzz", ["price", "qty"])
    'known: price, qty'
    """
    names = list(known)
    if not names:
        return None
    by_lower = {candidate.lower(): candidate for candidate in reversed(names)}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"did you mean '{by_lower[close[0]]}'? ({listing(names)})" if close else f"known: {listing(names)}"
