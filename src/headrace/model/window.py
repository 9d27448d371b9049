"""The windows a query can ask for."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from headrace.units import format_duration

__all__ = ["CumulativeWindow", "HoppingWindow", "RangeWindow", "RowsWindow", "SlidingWindow", "TimeWindow"]


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A window of event time `[end - size, end)`, answered again and again as time passes."""

    size_us: int
    slide_us: int

    def __post_init__(self) -> None:
        if self.size_us <= 0 or self.slide_us <= 0:
            raise ValueError(f"a window needs a positive size and slide, not {self.size_us} and {self.slide_us} us")

    @property
    def pane_us(self) -> int:
        """Length of the longest pane that both window starts and ends fall on."""
        return gcd(self.size_us, self.slide_us)

    @property
    def phase_us(self) -> int:
        """Window ends are `phase + n * slide`."""
        return 0

    def begin_us(self, end_us: int) -> int:
        """When the window begins that ends at a time."""
        return end_us - self.size_us

    def left_us(self, time_us: int) -> int:
        """The least time that no window holding a row of `time_us` ends after."""
        return time_us + self.size_us

    def whole_us(self, since_us: int) -> int:
        """The greatest end of a window that may begin before `since_us`."""
        return since_us + self.size_us - 1


@dataclass(frozen=True, slots=True)
class SlidingWindow(TimeWindow):
    """`FROM s [WINDOW size SLIDE slide]`: answered at least every slide of event time, sooner if that is cheaper."""

    def __str__(self) -> str:
        return f"[WINDOW {format_duration(self.size_us)} SLIDE {format_duration(self.slide_us)}]"


@dataclass(frozen=True, slots=True)
class HoppingWindow(TimeWindow):
    """`GROUP BY window(ts, size, slide, start)`: exactly the aligned windows, each once."""

    start_us: int = 0

    @property
    def pane_us(self) -> int:
        return gcd(self.size_us, self.slide_us, self.start_us)

    @property
    def phase_us(self) -> int:
        return (self.start_us + self.size_us) % self.slide_us

    def __str__(self) -> str:
        return f"window({format_duration(self.size_us)}, {format_duration(self.slide_us)})"


@dataclass(frozen=True, slots=True)
class CumulativeWindow(HoppingWindow):
    """`[WINDOW size CUMULATE step]`: windows that begin at multiples of the size and end at each step, each once.

    >>> window = CumulativeWindow(60, 20)
    >>> [(window.begin_us(end), end) for end in range(20, 100, 20)]
    [(0, 20), (0, 40), (0, 60), (60, 80)]
    """

    def __post_init__(self) -> None:
        # slots=True makes a class anew, which super() without arguments does not know.
        TimeWindow.__post_init__(self)
        if self.size_us % self.slide_us or self.start_us:
            raise ValueError(f"a cumulative window has whole steps, not {self.size_us} and {self.slide_us} us")

    def begin_us(self, end_us: int) -> int:
        return (end_us - 1) // self.size_us * self.size_us

    def left_us(self, time_us: int) -> int:
        return time_us // self.size_us * self.size_us + self.size_us

    def whole_us(self, since_us: int) -> int:
        return -(-since_us // self.size_us) * self.size_us

    def __str__(self) -> str:
        return f"[WINDOW {format_duration(self.size_us)} CUMULATE {format_duration(self.slide_us)}]"


@dataclass(frozen=True, slots=True)
class RangeWindow:
    """`[RANGE size]`: the rows of the last `size` of event time, one side of a join."""

    size_us: int

    def __post_init__(self) -> None:
        if self.size_us < 0:
            raise ValueError(f"a range cannot be negative: {self.size_us} us")

    def __str__(self) -> str:
        return f"[RANGE {format_duration(self.size_us)}]"


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """`[PARTITION BY k ROWS n]`: the last `rows` rows of each key, a result on every row."""

    partition_by: tuple[str, ...]
    rows: int

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"a row window needs at least one row, not {self.rows}")
        if not self.partition_by:
            raise ValueError("a row window needs a PARTITION BY column")

    def __str__(self) -> str:
        return f"[PARTITION BY {', '.join(self.partition_by)} ROWS {self.rows}]"
