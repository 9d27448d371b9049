"""Figures that are made once for all tests of a run."""

from __future__ import annotations

from functools import cache

import pytest

from headrace.reproduce import Figure, Made, Settings


@cache
def _made(figure: Figure, seed: int) -> Made:
    return figure.make(Settings(quick=True, seed=seed))


@pytest.fixture
def made_quickly(figure: Figure) -> Made:
    """The figure of a parametrised test, with quick settings."""
    return _made(figure, 1)
