"""Tables of words, written as prose, and texts as messages show them."""

from __future__ import annotations

__all__ = ["shown", "words"]

# Characters of a user's text that a message repeats: enough to find it again.
_MOST_SHOWN = 40


def words(text: str) -> frozenset[str]:
    """The words of a text.

    >>> sorted(words("b a b"))
    ['a', 'b']
    """
    return frozenset(text.split())


def shown(text: str) -> str:
    """A user's text in quotes, shortened.

    >>> shown("top/talkers"), shown("x" * 1000)
    ("'top/talkers'", "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' (1000 characters)")
    """
    start = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:_MOST_SHOWN])
    return f"'{start}'" if len(text) <= _MOST_SHOWN else f"'{start}...' ({len(text)} characters)"
