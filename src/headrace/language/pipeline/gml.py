"""GML, the graph format of the Topology Zoo: keys with numbers, texts or lists of more keys.

graph [
  node [ id 0 label "Seattle" Latitude 47.6 Longitude -122.3 ]
  edge [ source 0 target 1 ]
]
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from headrace.language.words import shown

__all__ = ["GmlError", "Item", "parse_gml"]

# The Topology Zoo's largest file has 20,000 words, three levels deep.
MOST_ITEMS, MOST_LEVELS = 500_000, 16
# Of a number; no double needs more.
_MOST_DIGITS = 40
_TOKEN = re.compile(
    r"""(?P<blank>\s+|\#[^\n]*)
      | (?P<key>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)
      | (?P<text>"[^"]*")
      | (?P<open>\[) | (?P<close>\])
    """,
    re.VERBOSE,
)
# No part of the format, and written where a text is meant.
_TRUTHS = frozenset({"True", "False", "true", "false"})


class GmlError(ValueError):
    """A text that is not GML, and the line where that shows."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Item:
    """A key with its value: a number, a text, or the items of a list."""

    key: str
    value: float | str | tuple[Item, ...]
    line: int

    def every(self, key: str) -> list[Item]:
        """The items of a list that have this key, whatever its case."""
        inside = self.value if isinstance(self.value, tuple) else ()
        return [item for item in inside if item.key.lower() == key.lower()]

    def first(self, *keys: str) -> Item | None:
        """The first item that has the first of these keys that is there."""
        return next((item for key in keys for item in self.every(key)), None)


def parse_gml(text: str) -> Item:
    """The whole text as one item; GmlError at the first thing that is no GML.

    >>> root = parse_gml('graph [ node [ id 7 label "Z&#xfc;rich" ] ]')
    >>> node = root.every("graph")[0].every("node")[0]
    >>> node.first("id").value, node.first("label").value
    (7.0, 'Zürich')
    """
    # Lists that are open: each its key, the line of its key, and its items so far.
    stack: list[tuple[str, int, list[Item]]] = [("", 1, [])]
    key: str | None = None
    line, position, count = 1, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            end = "its text has no closing quote" if text[position] == '"' else f"unexpected {shown(text[position])}"
            raise GmlError(f"not GML: {end}", line)
        kind, token = match.lastgroup, match.group()
        if kind == "key" and key is not None and token in _TRUTHS:
            kind = "text"
        count += kind != "blank"
        if kind == "close":
            if key is not None or len(stack) == 1:
                raise GmlError(f"not GML: {_unexpected(key)}, found ']'", line)
            name, at, items = stack.pop()
            stack[-1][2].append(Item(name, tuple(items), at))
        elif kind == "open":
            if key is None or len(stack) > MOST_LEVELS:
                raise GmlError(f"not GML: {'too many levels' if key else _unexpected(key) + ', found a list'}", line)
            stack.append((key, line, []))
            key = None
        elif kind == "key":
            if key is not None:
                raise GmlError(f"not GML: {_unexpected(key)}, found {shown(token)}", line)
            key = token
        elif kind != "blank":
            if key is None:
                raise GmlError(f"not GML: {_unexpected(key)}, found {shown(token)}", line)
            stack[-1][2].append(Item(key, _value(token, line), line))
            key = None
        if count > MOST_ITEMS:
            raise GmlError(f"it has more than {MOST_ITEMS} words", line)
        line, position = line + token.count("\n"), match.end()
    if key is not None or len(stack) > 1:
        name, at = (key, line) if key is not None else stack[-1][:2]
        raise GmlError(f"not GML: the file ends within {shown(name)}", at)
    return Item("", tuple(stack[0][2]), 1)


def _unexpected(key: str | None) -> str:
    return "expected a key" if key is None else f"expected a value of {shown(key)}"


def _value(token: str, line: int) -> float | str:
    if token.startswith('"') or token in _TRUTHS:
        return html.unescape(token.strip('"'))
    if len(token) > _MOST_DIGITS:
        raise GmlError(f"not GML: a number of {len(token)} characters; the most is {_MOST_DIGITS}", line)
    return float(token)
