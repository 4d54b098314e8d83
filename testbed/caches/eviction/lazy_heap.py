"""A heap from which entries are dropped by forgetting them."""

from __future__ import annotations

import heapq
from collections.abc import Hashable


class LazyHeap:
    """Keys by a number, lowest first, older first among equals. O(log n) amortised.

    A dropped key stays in the list until it comes to the top or half of the list is dropped ones. ``at`` names the
    push: no two pushes share it.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._live: dict[Hashable, int] = {}

    def push(self, key: Hashable, number: float, at: int) -> None:
        self._live[key] = at
        heapq.heappush(self._heap, (number, at, key))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [e for e in self._heap if self._live.get(e[2]) == e[1]]
            heapq.heapify(self._heap)

    def drop(self, key: Hashable) -> None:
        self._live.pop(key, None)

    def lowest(self) -> Hashable | None:
        while self._heap:
            _, at, key = self._heap[0]
            if self._live.get(key) == at:
                return key
            heapq.heappop(self._heap)
        return None
