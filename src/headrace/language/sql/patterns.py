"""Patterns that a text can keep a matcher busy with: refused before a row meets them.

Java's matcher tries every way to split a text among the parts of a pattern. A repetition of a repetition has
exponentially many ways, and each repetition that follows another over the same letters multiplies them by the length.
"""

from __future__ import annotations

import math
import re
import sys
import warnings

__all__ = ["like_trouble", "regex_trouble"]

# A pattern of more than a thousand characters was generated.
MOST_CHARACTERS = 1000
# Repetitions in a row over the same letters: each one more multiplies the tries by the length of the text.
MOST_IN_A_ROW = 3
# x{1000} is unrolled; more of it is a way to fill memory.
MOST_COUNTED = 1000
# Ways to take one text that a counted repetition, or choices one after another, may have: (?:\d{1,3}\.){3} has 27.
MOST_WAYS = 1000
# A choice with a repetition in it counts as so many ways: three of them are accepted.
REPEATED_WAYS = 10
# `%` between letters, each of which multiplies the tries by the length of the text.
MOST_WILDCARDS = 4

_ESCAPED_SETS = {"d": "0123456789", "w": None, "s": " \t\n"}
_REPEATS = ("*", "+", "?", "{")
_HEAD = re.compile(r"\((?:\?(?:<?[=!]|[:>]|<\w+>|(?P<flags>[a-zA-Z-]*)[:)]?))?")
_COUNTED = re.compile(r"\{(\d*)(,?)(\d*)\}")
# Letters by their codes, and classes and names in braces.
_CODED = re.compile(
    r"\\(?:x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\}|u([0-9A-Fa-f]{4})|0(?P<octal>[0-3]?[0-7]{1,2})|c.|[pPN]\{[^}]*\})"
)


def like_trouble(pattern: str) -> str | None:
    """Why a LIKE pattern is refused, if it is.

    >>> like_trouble("%error%"), like_trouble("%a%b%c%d%e%f%")
    (None, 'a LIKE pattern with 5 % between letters is tried in very many ways')
    """
    if len(pattern) > MOST_CHARACTERS:
        return f"a pattern of {len(pattern)} characters; the most is {MOST_CHARACTERS}"
    inner = re.sub(r"%+", "%", pattern).strip("%").count("%")
    return (
        f"a LIKE pattern with {inner} % between letters is tried in very many ways" if inner > MOST_WILDCARDS else None
    )


def regex_trouble(pattern: str) -> str | None:
    r"""Why a regular expression is refused, if it is.

    >>> regex_trouble(r"^(\d+)\.(\d+)\.(\d+)\.(\d+)$"), regex_trouble("(a+)+b")
    (None, 'a repetition inside a repetition, or of a choice, is tried in exponentially many ways')
    """
    if len(pattern) > MOST_CHARACTERS:
        return f"a pattern of {len(pattern)} characters; the most is {MOST_CHARACTERS}"
    return _Scan(pattern).trouble()


class _Scan:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self._groups: list[float] = [1]  # per open group: the ways in which it takes a given text
        self._chosen = [1.0]  # per open group: the ways of its choices, one after another, that are not repeated
        self._row: list[str | None] = []  # letters of the repetitions that may follow one another; None is any letter
        self._last: tuple[str | None, float] | None = None  # letters of the last part, and its ways

    def trouble(self) -> str | None:
        while self.place < len(self.pattern):
            sign = self.pattern[self.place]
            if sign in _REPEATS and self._last is not None:
                found = self._repeated(*self._last)
            else:
                found = {"(": self._opened, ")": self._closed, "|": self._choice}.get(sign, self._letters)()
            if found is not None:
                return found
        return None

    @property
    def _ahead(self) -> str:
        return self.pattern[self.place : self.place + 1]

    def _opened(self) -> str | None:
        self._groups.append(1)
        self._chosen.append(1)
        self._last = None
        return "the flag x lets a pattern hold blanks and comments" if "x" in self._group_head() else None

    def _closed(self) -> str | None:
        inside, ways = (self._chosen.pop(), self._groups.pop()) if len(self._groups) > 1 else (1.0, 1.0)
        self._last = (None, ways)
        self.place += 1
        if self._ahead not in _REPEATS:
            self._groups[-1] *= ways
        self._chosen[-1] *= max(inside, REPEATED_WAYS if inside > 1 and math.isinf(ways) else 1)
        if self._chosen[-1] > MOST_WAYS:
            return "so many choices one after another are tried in exponentially many ways"
        return None

    def _choice(self) -> str | None:
        self._groups[-1] += 1
        self._chosen[-1] += 1
        self._row, self._last = [], None
        self.place += 1
        return None

    def _repeated(self, letters: str | None, inner: float) -> str | None:
        least, most = self._repetition()
        ways = math.inf if most is None else (most - least + 1) * (inner ** min(most, MOST_COUNTED))
        if inner > 1 and ways > MOST_WAYS:
            return "a repetition inside a repetition, or of a choice, is tried in exponentially many ways"
        if most is not None and most > MOST_COUNTED:
            return f"a repetition up to {most} times; the most is {MOST_COUNTED}"
        self._groups[-1] *= ways
        if ways > 1:
            # What must take a letter ends the repetitions before it that cannot; what may take none does not.
            self._row = [each for each in self._row if least == 0 or _overlap(each, letters)] + [letters]
            in_a_row = sum(_overlap(each, letters) for each in self._row)
            if in_a_row > MOST_IN_A_ROW:
                return f"{in_a_row} repetitions in a row over the same letters are tried in very many ways"
        self._last = None
        # A lazy or possessive sign belongs to the repetition.
        if self._ahead in ("?", "+"):
            self.place += 1
        return None

    def _letters(self) -> str | None:
        refused, letters = self._part()
        # A letter that a repetition before cannot take ends it.
        if self._ahead not in ("*", "?", "{"):
            self._row = [each for each in self._row if _overlap(each, letters)]
        self._last = (letters, 1)
        return refused

    def _group_head(self) -> str:
        """Skips what opens a group; the flags it sets."""
        head = _HEAD.match(self.pattern, self.place)
        assert head is not None
        self.place = head.end() - (1 if head.group("flags") is not None and head.group().endswith(")") else 0)
        return head.group("flags") or ""

    def _repetition(self) -> tuple[int, int | None]:
        sign = self.pattern[self.place]
        counted = _COUNTED.match(self.pattern, self.place) if sign == "{" else None
        if counted is None:
            self.place += 1
            return (1 if sign == "+" else 0), (1 if sign in "?{" else None)
        self.place = counted.end()
        least = int(counted.group(1)[:9] or 0)
        if not counted.group(2):
            return least, least
        return least, int(counted.group(3)[:9]) if counted.group(3) else None

    def _part(self) -> tuple[str | None, str | None]:
        """Why one part is refused, if it is, and the letters that it may be; None is any."""
        sign = self.pattern[self.place]
        if sign == "[":
            return self._set()
        if sign != "\\":
            self.place += 1
            return None, None if sign in ".^$" else sign
        after = self.pattern[self.place + 1 : self.place + 2]
        if (after.isdigit() and after != "0") or after == "k":
            return "a reference to a group is tried in very many ways", None
        if after == "Q":
            return "\\Q hides the pattern behind it; write a backslash before each sign", None
        coded = _CODED.match(self.pattern, self.place)
        if coded is not None:
            self.place = coded.end()
            digits = next((each for each in coded.groups() if each is not None), None)
            base = 8 if coded.group("octal") is not None else 16
            return None, None if digits is None or int(digits, base) > sys.maxunicode else chr(int(digits, base))
        self.place += 2
        return None, _ESCAPED_SETS.get(after, None if after.isalpha() else after)

    def _set(self) -> tuple[str | None, str | None]:
        start = self.place
        self.place += 2 if self.pattern[start + 1 : start + 2] == "^" else 1
        if self.pattern[self.place : self.place + 1] == "]":
            self.place += 1
        while self.place < len(self.pattern) and self.pattern[self.place] != "]":
            if self.pattern[self.place] == "[" or self.pattern.startswith("&&", self.place):
                return (
                    "a set inside a set, and &&, are not accepted: write one set, with a backslash before [ and &",
                    None,
                )
            self.place += 2 if self.pattern[self.place] == "\\" else 1
        self.place += 1
        inside = self.pattern[start + 1 : self.place - 1]
        try:
            with warnings.catch_warnings():
                # Python foresees sets of sets that Java does not have.
                warnings.simplefilter("ignore", FutureWarning)
                found = re.compile(f"[{inside}]")
        except re.error:
            return None, None
        return None, "".join(chr(code) for code in range(128) if found.match(chr(code)))


def _overlap(one: str | None, other: str | None) -> bool:
    return one is None or other is None or bool(set(one) & set(other))
