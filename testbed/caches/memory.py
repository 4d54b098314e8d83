"""A cache in process memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from testbed.caches import codec
from testbed.core.clock import Clock, LogicalClock
from testbed.core.errors import InvalidInput
from testbed.core.types import Key


class MemoryCache:
    """Least recently used goes first once ``capacity`` entries are held (None: no bound).

    Without a clock, logical time stands still and nothing expires that had a positive ``ttl_s``.
    """

    def __init__(self, capacity: int | None = None, clock: Clock | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise InvalidInput(f"capacity={capacity} must be >= 1, or None for no bound (caches/memory.py)")
        self.capacity = capacity
        self._clock = clock if clock is not None else LogicalClock()
        self._entries: OrderedDict[Key, bytes] = OrderedDict()

    def get(self, key: Key) -> Any | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value = codec.unpack(entry, self._clock.now())
        self._entries.move_to_end(key)
        return value

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        expires_at_s = math.inf if ttl_s is None else self._clock.now() + ttl_s
        self._entries[key] = codec.pack(value, expires_at_s)
        self._entries.move_to_end(key)
        if self.capacity is not None and len(self._entries) > self.capacity:
            self._entries.popitem(last=False)

    def delete(self, key: Key) -> None:
        self._entries.pop(key, None)

    def fresh(self) -> MemoryCache:
        return MemoryCache(self.capacity, self._clock)

    @property
    def held_bytes(self) -> int:
        """Bytes of the keys and entries held, expired ones included."""
        return sum(codec.key_bytes(key) + len(entry) for key, entry in self._entries.items())

    def __len__(self) -> int:
        """Entries held, expired ones included."""
        return len(self._entries)
