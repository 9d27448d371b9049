"""One test for many subjects: a thousand modules are not a thousand tests, each of which costs more than its check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

Subject = TypeVar("Subject", str, Path)


def of_every(subjects: Iterable[Subject]) -> Callable[[Callable[[Subject], None]], Callable[[], None]]:
    """Makes a check of one subject a test of them all, which names each that fails and why."""
    chosen = list(subjects)

    def made(check: Callable[[Subject], None]) -> Callable[[], None]:
        def test() -> None:
            assert chosen, "there is nothing to check"
            wrong = []
            for subject in chosen:
                try:
                    check(subject)
                except AssertionError as failure:
                    wrong.append(f"{subject}: {failure}")
            assert not wrong, "\n".join(wrong)

        test.__doc__ = check.__doc__
        return test

    return made
