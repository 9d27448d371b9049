"""Tables of words, written as prose."""

from __future__ import annotations

__all__ = ["words"]


def words(text: str) -> frozenset[str]:
    """The words of a text.

    >>> sorted(words("b a b"))
    ['a', 'b']
    """
    return frozenset(text.split())
