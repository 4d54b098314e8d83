"""SIEVE: one queue, one bit an entry, one hand."""

from __future__ import annotations

from collections.abc import Hashable

from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore


class _Node:
    __slots__ = ("key", "newer", "older", "visited")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.visited = False
        self.newer: _Node | None = None
        self.older: _Node | None = None


class Sieve:
    """A hand walks from old to new, clears the marks of entries that were read, and evicts the first without one.

    Entries never move. O(1) amortised: each step of the hand clears a mark that a hit has set.

    References
    ----------
    Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024.
    """

    def __init__(self, capacity: int, *, on_evict: OnEvict = ignore) -> None:
        self.capacity = checked_capacity(capacity)
        self._on_evict = on_evict
        self._nodes: dict[Hashable, _Node] = {}
        self._newest: _Node | None = None
        self._oldest: _Node | None = None
        self._hand: _Node | None = None

    def access(self, key: Hashable) -> bool:
        node = self._nodes.get(key)
        if node is not None:
            node.visited = True
            return True
        if len(self._nodes) >= self.capacity:
            self._evict()
        self._push(_Node(key))
        return False

    def remove(self, key: Hashable) -> None:
        node = self._nodes.get(key)
        if node is not None:
            self._unlink(node)

    def _evict(self) -> None:
        node = self._hand or self._oldest
        while node is not None and node.visited:
            node.visited = False
            node = node.newer or self._oldest
        assert node is not None, "a full cache has an oldest entry"
        self._hand = node  # so that unlinking moves the hand on
        self._unlink(node)
        self._on_evict(node.key)

    def _push(self, node: _Node) -> None:
        node.older = self._newest
        if self._newest is not None:
            self._newest.newer = node
        self._newest = node
        if self._oldest is None:
            self._oldest = node
        self._nodes[node.key] = node

    def _unlink(self, node: _Node) -> None:
        if self._hand is node:
            self._hand = node.newer
        if node.newer is None:
            self._newest = node.older
        else:
            node.newer.older = node.older
        if node.older is None:
            self._oldest = node.newer
        else:
            node.older.newer = node.newer
        del self._nodes[node.key]

    def __contains__(self, key: Hashable) -> bool:
        return key in self._nodes

    def __len__(self) -> int:
        return len(self._nodes)
