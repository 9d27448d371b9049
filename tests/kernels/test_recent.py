"""What workers remember of state files: the last used of it, up to a size and an age."""

from __future__ import annotations

import polars as pl
import pytest

from headrace.kernels import chunks
from headrace.kernels.recent import KEPT_S, Recent


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_too_much_goes_least_recently_used_first():
    recent = Recent[str, int](3, Clock())
    for key in "abc":
        recent.put(key, ord(key), 1)
    assert recent.get("a") == ord("a")
    recent.put("d", ord("d"), 1)
    assert [recent.get(key) for key in "abcd"] == [ord("a"), None, ord("c"), ord("d")]


def test_what_nobody_asked_for_in_a_while_goes_though_it_would_fit():
    clock = Clock()
    recent = Recent[str, int](1000, clock)
    recent.put("gone", 1, 1)
    recent.put("used", 2, 1)
    clock.now = KEPT_S
    assert recent.get("used") == 2
    clock.now = KEPT_S + 1
    recent.put("new", 3, 1)
    assert (recent.get("gone"), recent.get("used"), recent.get("new")) == (None, 2, 3)


def test_a_value_that_does_not_fit_is_remembered_alone_and_one_that_is_replaced_counts_once():
    recent = Recent[str, int](10, Clock())
    recent.put("small", 1, 4)
    recent.put("small", 2, 4)
    recent.put("other", 3, 4)
    assert len(recent) == 2
    recent.put("large", 4, 100)
    assert (len(recent), recent.get("large")) == (1, 4)
    recent.drop("large")
    recent.put("small", 5, 10)
    recent.put("another", 6, 0)
    assert len(recent) == 2


def test_an_hour_of_chunks_that_come_and_go_leaves_no_more_than_the_last_minutes(monkeypatch: pytest.MonkeyPatch):
    """A chunk a second, each read for ten seconds: before, an hour of them stayed, some 3600 parts a worker."""
    clock = Clock()
    monkeypatch.setattr(chunks, "_parts", Recent(chunks._CACHE_BYTES, clock))
    monkeypatch.setattr(chunks, "_decoded", lambda uri, part, data: pl.DataFrame({"n": [1]}))
    part = chunks.Part("s", 0, 0, 1, 1, 1, 0)
    for second in range(3600):
        clock.now = float(second)
        for name in range(max(0, second - 10), second + 1):
            chunks._part(f"file{name}", part, b"")
    assert len(chunks._parts) <= KEPT_S + 12
