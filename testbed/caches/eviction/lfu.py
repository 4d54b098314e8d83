"""Least frequently used."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore


class Lfu:
    """The entry with the fewest reads since it came in goes; among equals, the one that was read least recently. O(1).

    A count lives as long as its entry: a key that comes back starts again at 1.

    References
    ----------
    Shah, Mitra, Matani, "An O(1) algorithm for implementing the LFU cache eviction scheme", 2010.
    """

    def __init__(self, capacity: int, *, on_evict: OnEvict = ignore) -> None:
        self.capacity = checked_capacity(capacity)
        self._on_evict = on_evict
        self._count: dict[Hashable, int] = {}
        self._buckets: dict[int, OrderedDict[Hashable, None]] = {}
        self._least = 1

    def access(self, key: Hashable) -> bool:
        count = self._count.get(key)
        if count is not None:
            self._leave(key, count)
            if count == self._least and count not in self._buckets:
                self._least = count + 1
            self._enter(key, count + 1)
            return True
        if len(self._count) >= self.capacity:
            self._evict()
        self._enter(key, 1)
        self._least = 1
        return False

    def remove(self, key: Hashable) -> None:
        # ``_least`` may now point at an empty bucket; the next eviction follows an insertion, which sets it to 1
        count = self._count.pop(key, None)
        if count is not None:
            self._leave(key, count)

    def _evict(self) -> None:
        victim = next(iter(self._buckets[self._least]))
        self._leave(victim, self._count.pop(victim))
        self._on_evict(victim)

    def _enter(self, key: Hashable, count: int) -> None:
        self._count[key] = count
        bucket = self._buckets.get(count)
        if bucket is None:
            bucket = self._buckets[count] = OrderedDict()
        bucket[key] = None

    def _leave(self, key: Hashable, count: int) -> None:
        bucket = self._buckets[count]
        del bucket[key]
        if not bucket:
            del self._buckets[count]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._count

    def __len__(self) -> int:
        return len(self._count)
