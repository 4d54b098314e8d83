"""Expiry by age: counted from the write (absolute) or from the last read (sliding)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore
from testbed.core.errors import InvalidInput


class Ttl:
    """An entry lives for ``ttl_s``; when the cache is full, the one that would expire first goes. O(1) amortised.

    ``sliding`` starts the life again at every hit: the most asked entry never expires, however old its value is.
    ``now`` is the run's logical clock; without one, each access is one second.
    """

    def __init__(
        self,
        capacity: int,
        *,
        ttl_s: float,
        sliding: bool = False,
        now: Callable[[], float] | None = None,
        on_evict: OnEvict = ignore,
    ) -> None:
        if not ttl_s > 0:
            raise InvalidInput(f"ttl_s={ttl_s} must be > 0 (eviction policy Ttl)")
        self.capacity = checked_capacity(capacity)
        self._ttl_s = ttl_s
        self._sliding = sliding
        self._clock = now
        self._accesses = 0
        self._on_evict = on_evict
        # one lifetime for all, so the order of (re)starts is the order of expiry
        self._expiry: OrderedDict[Hashable, float] = OrderedDict()

    def access(self, key: Hashable) -> bool:
        self._accesses += 1
        now = self._now()
        self._expire(now)
        hit = key in self._expiry
        if hit and not self._sliding:
            return True
        if not hit and len(self._expiry) >= self.capacity:
            self._on_evict(self._expiry.popitem(last=False)[0])
        self._expiry[key] = now + self._ttl_s
        self._expiry.move_to_end(key)
        return hit

    def remove(self, key: Hashable) -> None:
        self._expiry.pop(key, None)

    def _now(self) -> float:
        return float(self._accesses) if self._clock is None else self._clock()

    def _expire(self, now: float) -> None:
        while self._expiry:
            key = next(iter(self._expiry))
            if self._expiry[key] > now:
                return
            del self._expiry[key]
            self._on_evict(key)

    def __contains__(self, key: Hashable) -> bool:
        # without a clock the question is about the next access, which is one second away
        now = self._now() if self._clock is not None else self._accesses + 1.0
        return self._expiry.get(key, now) > now

    def __len__(self) -> int:
        return len(self._expiry)
