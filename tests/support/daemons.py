"""What Spark's Python daemons write when a driver leaves."""

from __future__ import annotations

import re

_LEFT = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(?:  File \"[^\n]*pyspark/daemon\.py\"[^\n]*\n(?:    [^\n]*\n)*)+"
    r"BrokenPipeError[^\n]*\n?"
)


def without_daemons(text: str) -> str:
    """A text without the tracebacks of daemons whose driver has closed their pipe: Spark's own, and harmless."""
    return _LEFT.sub("", text)
