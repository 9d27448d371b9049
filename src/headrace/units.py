"""Durations and sizes as people write them. Event time is in whole microseconds everywhere."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["SECOND_US", "format_bytes", "format_duration", "parse_duration", "parse_size"]

SECOND_US = 1_000_000
# A century: longer durations are typing mistakes, and times that far away would leave the range of timestamps.
_LONGEST_US = 100 * 366 * 86_400 * SECOND_US

_UNITS_US = {
    "us": 1, "microsecond": 1, "microseconds": 1,
    "ms": 1_000, "millisecond": 1_000, "milliseconds": 1_000,
    "s": SECOND_US, "sec": SECOND_US, "secs": SECOND_US, "second": SECOND_US, "seconds": SECOND_US,
    "m": 60 * SECOND_US, "min": 60 * SECOND_US, "mins": 60 * SECOND_US,
    "minute": 60 * SECOND_US, "minutes": 60 * SECOND_US,
    "h": 3600 * SECOND_US, "hour": 3600 * SECOND_US, "hours": 3600 * SECOND_US,
    "d": 86400 * SECOND_US, "day": 86400 * SECOND_US, "days": 86400 * SECOND_US,
    "w": 7 * 86400 * SECOND_US, "week": 7 * 86400 * SECOND_US, "weeks": 7 * 86400 * SECOND_US,
}  # fmt: skip

_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*")
# Digits and units of a duration that somebody means; Python takes its time over numbers of thousands of digits.
_MOST_CHARACTERS = 200


def parse_duration(text: str) -> int:
    """Microseconds of a duration of at most a century; raises ValueError with the accepted form.

    >>> parse_duration("10 min"), parse_duration("1 minute 30 seconds"), parse_duration("2.5s")
    (600000000, 90000000, 2500000)
    >>> parse_duration("ten minutes")
    Traceback (most recent call last):
    ...
    ValueError: 'ten minutes' is not a duration; write a number and a unit, such as '10 seconds', '5 min' or '1 hour'
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"a duration of {len(text)} characters; write a number and a unit, such as '10 seconds'")
    position, total = 0, Fraction(0)
    body = text.strip()
    if body.lower().startswith("interval "):
        body = body[9:]
    while position < len(body):
        match = _PART.match(body, position)
        unit = _UNITS_US.get(match.group(2).lower()) if match else None
        if match is None or unit is None:
            break
        total += Fraction(match.group(1)) * unit
        position = match.end()
    if not body or position < len(body):
        raise ValueError(
            f"{text!r} is not a duration; write a number and a unit, such as '10 seconds', '5 min' or '1 hour'"
        )
    if total > _LONGEST_US:
        raise ValueError(f"{text!r} is longer than a century; check the unit")
    if 0 < total < 1:
        raise ValueError(f"{text!r} is shorter than a microsecond, the smallest unit of time; check the unit")
    return round(total)


def parse_size(text: str) -> int:
    """Bytes of a size as Spark's settings have them; raises ValueError with the accepted form.

    >>> parse_size("512m"), parse_size("2 GB"), parse_size("100")
    (536870912, 2147483648, 100)
    """
    # 18 digits are an exabyte.
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*([kmgt]?)(?:b|ib)?\s*", text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write a number and a unit, such as '512m' or '2g'")
    return int(match.group(1)) << (10 * " kmgt".index(match.group(2) or " "))


def format_duration(us: int) -> str:
    """The shortest exact reading of a duration in one unit.

    >>> format_duration(600_000_000), format_duration(90_000_000), format_duration(1_500)
    ('10 min', '90 s', '1500 us')
    """
    if us == 0:
        return "0 s"
    for unit, name in ((86400 * SECOND_US, "d"), (3600 * SECOND_US, "h"), (60 * SECOND_US, "min"),
                       (SECOND_US, "s"), (1_000, "ms")):  # fmt: skip
        if us % unit == 0:
            return f"{us // unit} {name}"
    return f"{us} us"


def format_bytes(count: float) -> str:
    """A size with three significant digits.

    >>> format_bytes(512), format_bytes(3_400_000)
    ('512 B', '3.4 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
