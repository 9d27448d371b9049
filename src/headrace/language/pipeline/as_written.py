"""Where in a file a character of a YAML text stands: folded, quoted, or in a block of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["AsWritten"]

# What stands before a text: an anchor, a tag, the head of a block with its comment.
_BEFORE = re.compile(r"(?:[&!]\S*\s+)*(?:[|>][-+0-9]*[^\n]*\n)?")
# Escapes in double quotes that stand for a blank, and those that name a character by its number.
_BLANK = re.compile(r"\\(?:[ntr N_LP\t]|\n)")
_NUMBER = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})")


@dataclass(frozen=True, slots=True)
class AsWritten:
    """A text as it is written in its file, quotes and indentation included, and where it begins.

    >>> AsWritten('>\\n  SELECT a\\n  FROM s\\n', 7, 8).place("SELECT a FROM s", 9)
    (9, 3)
    """

    raw: str
    line: int
    column: int

    def place(self, text: str, offset: int) -> tuple[int, int | None]:
        """Line and column of a character of the text; only the first line if what is written cannot be followed."""
        before = _BEFORE.match(self.raw)
        at = before.end() if before else 0
        quote = "" if self.raw[:at].endswith("\n") or self.raw[at : at + 1] not in ("'", '"') else self.raw[at]
        at += len(quote)
        found = at
        for letter in text[: offset + 1]:
            if letter.isspace():
                continue
            at = self._past_blanks(at, quote)
            named = _NUMBER.match(self.raw, at) if quote == '"' else None
            if named is None:
                at += quote == '"' and self.raw.startswith("\\", at)
                at += quote == "'" and self.raw.startswith("''", at) and letter == "'"
                if not self.raw.startswith(letter, at):
                    return self.line, None
            found, at = at, named.end() if named else at + 1
        line = self.line + self.raw.count("\n", 0, found)
        begin = self.raw.rfind("\n", 0, found) + 1
        return line, found - begin + 1 if begin else self.column + found

    def _past_blanks(self, at: int, quote: str) -> int:
        while at < len(self.raw):
            escaped = _BLANK.match(self.raw, at) if quote == '"' else None
            if escaped is None and not self.raw[at].isspace():
                break
            at = escaped.end() if escaped else at + 1
        return at
