"""What a Python worker has read of late and may need again; bounded by size and by age."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["Recent"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
# State files are merged and dropped all the time, and nobody tells workers: what no task has asked for in this long
# is likely of a file that is gone. What is asked for less often is read again.
KEPT_S = 120.0


class Recent(Generic[K, V]):
    """Values by key, least recently used first; those that are too many or too old are forgotten as others come.

    >>> recent = Recent(10, now=iter([0.0, 1.0, 200.0]).__next__)
    >>> recent.put("a", 1, size=5), recent.put("b", 2, size=5), recent.put("c", 3, size=5), len(recent)
    (None, None, None, 1)
    """

    def __init__(self, most: int, now: Callable[[], float] = time.monotonic) -> None:
        self.most, self._now = most, now
        self._items: OrderedDict[K, tuple[V, int, float]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: K) -> V | None:
        """The value, if it is there; from now on it is the last used."""
        found = self._items.get(key)
        if found is None:
            return None
        self._items[key] = (found[0], found[1], self._now())
        self._items.move_to_end(key)
        return found[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Remembers a value, and at least this one."""
        self.drop(key)
        now = self._now()
        self._items[key] = (value, size, now)
        self._size += size
        while len(self._items) > 1:
            _, size, used = next(iter(self._items.values()))
            if self._size <= self.most and used >= now - KEPT_S:
                return
            self._items.popitem(last=False)
            self._size -= size

    def drop(self, key: K) -> None:
        """Forgets one value."""
        if key in self._items:
            self._size -= self._items.pop(key)[1]

    def clear(self) -> None:
        """Forgets all."""
        self._items.clear()
        self._size = 0
