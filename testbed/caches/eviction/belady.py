"""Belady's optimum: the limit that no policy passes, for those who know the future."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence

from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore
from testbed.core.errors import InvalidInput


class Belady:
    """The entry that is needed again last goes. Offline: it is given the trace that it will be asked. O(log n).

    ``bypass`` lets a key that is needed later than all others pass by without coming in; with it, no policy of any
    kind has more hits (without it, none that must take in what it fetched).

    References
    ----------
    Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal 5(2), 1966.
    """

    def __init__(
        self, capacity: int, trace: Sequence[Hashable], *, bypass: bool = False, on_evict: OnEvict = ignore
    ) -> None:
        self.capacity = checked_capacity(capacity)
        self._trace = trace
        self._bypass = bypass
        self._on_evict = on_evict
        self._next = next_uses(trace)
        self._at = 0
        self._held: dict[Hashable, int] = {}
        # (-next use, position of the push, key); an entry is stale when the key's next use has moved on
        self._heap: list[tuple[int, int, Hashable]] = []

    def access(self, key: Hashable) -> bool:
        at = self._at
        if at >= len(self._trace) or self._trace[at] != key:
            raise InvalidInput(f"key={key!r} at request {at} is not what the trace announced (Belady)")
        self._at += 1
        hit = key in self._held
        if not hit and len(self._held) >= self.capacity and not self._make_room(self._next[at]):
            return False
        self._held[key] = self._next[at]
        heapq.heappush(self._heap, (-self._next[at], at, key))
        return hit

    def remove(self, key: Hashable) -> None:
        self._held.pop(key, None)

    def _make_room(self, next_use: int) -> bool:
        """Evict the one that is needed last; False when that is the newcomer and it may pass by."""
        while True:
            use, _, victim = self._heap[0]
            if self._held.get(victim) != -use:
                heapq.heappop(self._heap)
            elif self._bypass and next_use >= -use:
                return False
            else:
                heapq.heappop(self._heap)
                del self._held[victim]
                self._on_evict(victim)
                return True

    def __contains__(self, key: Hashable) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)


def next_uses(trace: Sequence[Hashable]) -> list[int]:
    """For each request, the index of the next one for the same key; ``len(trace)`` when there is none."""
    out = [len(trace)] * len(trace)
    seen: dict[Hashable, int] = {}
    for at in range(len(trace) - 1, -1, -1):
        out[at] = seen.get(trace[at], len(trace))
        seen[trace[at]] = at
    return out
