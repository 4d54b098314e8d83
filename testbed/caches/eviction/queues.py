"""Policies that are one queue: first in first out, and least recently used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore


class _Queue:
    """One queue, of which the front goes; what a read does to it is the policy."""

    def __init__(self, capacity: int, *, on_evict: OnEvict = ignore) -> None:
        self.capacity = checked_capacity(capacity)
        self._on_evict = on_evict
        self._queue: OrderedDict[Hashable, None] = OrderedDict()

    def remove(self, key: Hashable) -> None:
        self._queue.pop(key, None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._queue

    def __len__(self) -> int:
        return len(self._queue)

    def _admit(self, key: Hashable) -> bool:
        """Take it in at the end of the queue; False: it was not there."""
        if len(self._queue) >= self.capacity:
            self._on_evict(self._queue.popitem(last=False)[0])
        self._queue[key] = None
        return False


class Fifo(_Queue):
    """The oldest entry goes, however often it was read. O(1)."""

    def access(self, key: Hashable) -> bool:
        return key in self._queue or self._admit(key)


class Lru(_Queue):
    """The entry that was not read for the longest time goes. O(1)."""

    def access(self, key: Hashable) -> bool:
        if key not in self._queue:
            return self._admit(key)
        self._queue.move_to_end(key)
        return True
