"""Chance for simulated worlds: arrays of random numbers out of one seeded generator."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["picks", "uniforms"]


def uniforms(chance: random.Random, count: int) -> NDArray[Any]:
    """So many numbers, even in [0, 1).

    >>> bool((uniforms(random.Random(1), 3) == uniforms(random.Random(1), 3)).all())
    True
    """
    words = np.frombuffer(chance.randbytes(4 * count), dtype=np.uint32)
    return words * (1.0 / 2**32)


def picks(chance: random.Random, count: int, among: int) -> NDArray[np.int64]:
    """So many whole numbers, even among 0 to `among - 1`."""
    return (uniforms(chance, count) * among).astype(np.int64)
