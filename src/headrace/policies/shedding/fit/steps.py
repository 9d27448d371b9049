"""The steps of a computation that is done again and again: a step whose arguments are as before gives its result again.

A step whose result is as before gives the very same object, so the steps after it see at a glance that nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar, TypeVarTuple

import numpy as np

__all__ = ["Steps", "same"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Steps:
    """Arguments and results of the steps of one computation, by name, given those of the computation before.

    >>> before, after = Steps(), Steps(Steps())
    >>> total = before.do("total", sum, (1, 2, 3))
    >>> Steps(before).do("total", lambda numbers: 0, (1, 2, 3))
    6
    """

    def __init__(self, before: Steps | None = None) -> None:
        self._before = before._made if before else {}
        self._made: dict[Hashable, tuple[tuple[Any, ...], Any]] = {}

    def do(self, name: Hashable, step: Callable[[*Ts], T], *given: *Ts) -> T:
        """The result of a step, which depends on its arguments alone."""
        known = self._before.get(name)
        if known is None:
            made = (given, step(*given))
        elif same(known[0], given):
            made = known
        else:
            result = step(*given)
            made = (given, known[1] if same(known[1], result) else result)
        self._made[name] = made
        found: T = made[1]
        return found


def same(one: object, other: object) -> bool:
    """Whether two values, or arrays, or tuples of these, are the same; a fraction is not the same as a float."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        # Most arrays that differ do so at their end, where rates are highest.
        return not one.size or (bool(one.flat[-1] == other.flat[-1]) and bool((one == other).all()))
    if isinstance(one, tuple) and isinstance(other, tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(mine is its or same(mine, its) for mine, its in pairs)
    return bool(one == other)
