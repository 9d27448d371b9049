"""How long work on an epoch may take before a query is suspected: a multiple of what it should take.

An epoch should take no longer than the trigger. Many rows, a slow machine and many queries make it longer, and none of
these is a query's fault. So the limit follows the longest time that work was seen to take, and a query is judged by the
same work without its expressions, done just before:

    limit   = multiple * max(trigger, a second, longest so far)
    allowed = multiple * max(trigger, a second, the same rows without any query)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["Patience"]

# Shorter triggers, and none at all (epochs without a pause), do not make the fixed cost of an epoch smaller.
LEAST_S = 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """`multiple` and `trigger_s` are settings, `longest_s` is what an epoch took that nobody was blamed for."""

    multiple: int
    trigger_s: float
    longest_s: float = 0.0

    def __post_init__(self) -> None:
        if self.multiple < 1 or self.trigger_s < 0:
            raise ValueError(f"a limit of {self.multiple} times {self.trigger_s:g} s leaves no time")

    @property
    def usual_s(self) -> float:
        """Seconds that an epoch should take at most.

        >>> Patience(60, 3.0).usual_s, Patience(60, 0.0).usual_s
        (3.0, 1.0)
        """
        return max(self.trigger_s, LEAST_S)

    @property
    def limit_s(self) -> float:
        """Seconds after which work on an epoch is stopped and looked into.

        >>> Patience(60, 1.0).limit_s, Patience(60, 1.0).after(2.5).limit_s
        (60.0, 150.0)
        """
        return self.multiple * max(self.usual_s, self.longest_s)

    def after(self, seconds: float) -> Patience:
        """The patience after work that took so long, and was nobody's fault."""
        return replace(self, longest_s=max(self.longest_s, seconds))

    def allowed_s(self, without_s: float) -> float:
        """Seconds that one query may take for work that takes `without_s` without its expressions."""
        return self.multiple * max(self.usual_s, without_s)

    def cause(self, taken_s: float, without_s: float, what: str) -> str:
        """Why a query fails that took longer alone.

        >>> Patience(10, 3.0).cause(30.2, 0.4, "1,000 rows")
        'took over 30 s for 1,000 rows, which take 0.4 s without it; the limit is 10 times the trigger of 3 s \
(spark.headrace.patience); make its expressions cheaper, or raise the limit'
        """
        trigger = f"the trigger of {self.trigger_s:g} s" if self.trigger_s >= LEAST_S else "a second"
        base = trigger if without_s <= self.usual_s else "that"
        return (
            f"took over {taken_s:.0f} s for {what}, which take {without_s:.1f} s without it; the limit is "
            f"{self.multiple} times {base} (spark.headrace.patience); make its expressions cheaper, or raise the limit"
        )
