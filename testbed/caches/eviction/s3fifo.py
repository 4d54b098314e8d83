"""S3-FIFO: a small queue that most keys leave unread, a main queue, and a memory of what left."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore

_MOST = 3  # reads remembered by the main queue: two bits


class S3Fifo:
    """New keys enter a small FIFO; only those read twice there, or asked for again soon after, reach the main FIFO.

    Until the first eviction, what does not fit the small queue fills the main one. O(1) amortised. Sizes in entries:
    small ``int(capacity * small)`` (at least 1), ghost ``int(capacity * ghost)`` keys without values.

    References
    ----------
    Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.
    """

    def __init__(
        self,
        capacity: int,
        *,
        small: float = 0.1,
        ghost: float = 0.9,
        promote_at: int = 2,
        on_evict: OnEvict = ignore,
    ) -> None:
        self.capacity = checked_capacity(capacity)
        self._small_size = max(1, int(capacity * small))
        self._main_size = capacity - self._small_size
        self._ghost_size = int(capacity * ghost)
        self._promote_at = promote_at
        self._on_evict = on_evict
        self._small: OrderedDict[Hashable, int] = OrderedDict()
        self._main: OrderedDict[Hashable, int] = OrderedDict()
        self._ghost: OrderedDict[Hashable, None] = OrderedDict()
        self._has_evicted = False

    def access(self, key: Hashable) -> bool:
        if key in self._small:
            self._small[key] += 1
            return True
        if key in self._main:
            self._main[key] += 1
            return True
        came_back = key in self._ghost
        if came_back:
            del self._ghost[key]
        while len(self._small) + len(self._main) >= self.capacity:
            self._has_evicted = True
            self._make_room()
        filling = not self._has_evicted and len(self._small) >= self._small_size
        (self._main if came_back or filling else self._small)[key] = 0
        return False

    def remove(self, key: Hashable) -> None:
        for queue in (self._small, self._main):
            queue.pop(key, None)
        self._ghost.pop(key, None)

    def _make_room(self) -> None:
        if len(self._main) > self._main_size or not self._small:
            self._evict_from_main()
        else:
            self._evict_from_small()

    def _evict_from_small(self) -> None:
        """Move the read ones on until one that was not read has gone (or none is left)."""
        while self._small:
            key, reads = self._small.popitem(last=False)
            if reads < self._promote_at:
                self._remember(key)
                self._on_evict(key)
                return
            self._main[key] = 0

    def _evict_from_main(self) -> None:
        while True:
            key, reads = self._main.popitem(last=False)
            if reads == 0:
                self._on_evict(key)
                return
            self._main[key] = min(reads, _MOST) - 1

    def _remember(self, key: Hashable) -> None:
        if self._ghost_size == 0:
            return
        if len(self._ghost) >= self._ghost_size:
            self._ghost.popitem(last=False)
        self._ghost[key] = None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._small or key in self._main

    def __len__(self) -> int:
        return len(self._small) + len(self._main)
