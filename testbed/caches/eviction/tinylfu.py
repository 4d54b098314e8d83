"""W-TinyLFU: a small LRU window before a main cache that admits a key only if it is asked for more than its victim."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from hashlib import blake2b
from struct import unpack

from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore

_MOST = 15  # four-bit counters, as published
_HALVED = bytes(i // 2 for i in range(256))


class FrequencySketch:
    """Count-min sketch of how often keys were asked for lately; never under the true count since the last ageing.

    Four rows of saturating counters (0-15), a power of two wide and at least ``4 * n_entries``: narrower ones let a
    scan look popular. After ``10 * n_entries`` counts all are halved. The hash is BLAKE2b of the key's ``repr``:
    equal on every machine.
    """

    def __init__(self, n_entries: int) -> None:
        width = 1 << max(4, (4 * n_entries - 1).bit_length())
        self._mask = width - 1
        self._rows = [bytearray(width) for _ in range(4)]
        self._sample = 10 * n_entries
        self._counted = 0

    def add(self, key: Hashable) -> None:
        for row, word in zip(self._rows, _words(key), strict=True):
            at = word & self._mask
            if row[at] < _MOST:
                row[at] += 1
        self._counted += 1
        if self._counted >= self._sample:
            self._rows = [row.translate(_HALVED) for row in self._rows]
            self._counted //= 2

    def count(self, key: Hashable) -> int:
        mask = self._mask
        return min(row[word & mask] for row, word in zip(self._rows, _words(key), strict=True))


def _words(key: Hashable) -> tuple[int, ...]:
    """Four independent 32-bit hashes."""
    return unpack(">4I", blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=16).digest())


class WTinyLfu:
    """Window LRU (1 %), then a segmented LRU (80 % of it protected) that a key enters against its victim. O(1).

    Among equal counts the victim stays. No doorkeeper filter.

    References
    ----------
    Einziger, Friedman, Manes, "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017.
    """

    def __init__(
        self, capacity: int, *, window: float = 0.01, protected: float = 0.8, on_evict: OnEvict = ignore
    ) -> None:
        self.capacity = checked_capacity(capacity)
        self._window_size = max(1, int(capacity * window))
        self._main_size = capacity - self._window_size
        self._protected_size = int(self._main_size * protected)
        self._on_evict = on_evict
        self._sketch = FrequencySketch(capacity)
        self._window: OrderedDict[Hashable, None] = OrderedDict()
        self._probation: OrderedDict[Hashable, None] = OrderedDict()
        self._protected: OrderedDict[Hashable, None] = OrderedDict()

    def access(self, key: Hashable) -> bool:
        self._sketch.add(key)
        if key in self._window:
            self._window.move_to_end(key)
        elif key in self._protected:
            self._protected.move_to_end(key)
        elif key in self._probation:
            self._promote(key)
        else:
            self._window[key] = None
            if len(self._window) > self._window_size:
                self._admit(self._window.popitem(last=False)[0])
            return False
        return True

    def remove(self, key: Hashable) -> None:
        for queue in (self._window, self._probation, self._protected):
            queue.pop(key, None)

    def _promote(self, key: Hashable) -> None:
        del self._probation[key]
        self._protected[key] = None
        if len(self._protected) > self._protected_size:
            self._probation[self._protected.popitem(last=False)[0]] = None

    def _admit(self, candidate: Hashable) -> None:
        """The window's oldest enters the main cache if there is room, or if it is asked for more than who must go."""
        if len(self._probation) + len(self._protected) < self._main_size:
            self._probation[candidate] = None
            return
        queue = self._probation or self._protected
        victim = next(iter(queue), None)
        if victim is None or self._sketch.count(candidate) <= self._sketch.count(victim):
            self._on_evict(candidate)
            return
        del queue[victim]
        self._probation[candidate] = None
        self._on_evict(victim)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._window or key in self._probation or key in self._protected

    def __len__(self) -> int:
        return len(self._window) + len(self._probation) + len(self._protected)
