"""The published hybrid of LRU and LFU: a weighted sum of how often and how lately, lowest score goes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Literal, NamedTuple, Protocol, TypeAlias

from testbed.caches.eviction.kinetic import DecayingYoung
from testbed.caches.eviction.lazy_heap import LazyHeap
from testbed.caches.eviction.policy import OnEvict, checked_capacity, ignore
from testbed.core.errors import InvalidInput

Smoothing: TypeAlias = Literal["access", "rate", "tick", "count"]
SMOOTHINGS: tuple[Smoothing, ...] = ("access", "rate", "tick", "count")

# Scores are compared as integers, so that equal ones are equal on every machine: alpha in millionths, f in 2**-16.
_ALPHA = 1_000_000
_FINE = 1 << 16


class Read(NamedTuple):
    """What is known of a key: its smoothed frequency as of the access at tick ``last``."""

    frequency: float
    last: int


class Scoring(NamedTuple):
    """The published score ``alpha * min(f / W, 1) + (1 - alpha) * max(0, 1 - recency / W)`` and its readings.

    "f, EWMA-smoothed" is not defined further where it is published. Four readings, ``beta`` being the weight of the
    newest observation:

    - ``access``: at each access of the key ``f = (1 - beta) * f + 1``; unchanged between accesses
    - ``rate``: at each access ``f = (1 - beta) * f + beta * W / gap``: smoothed accesses per window
    - ``tick``: at each tick ``f = (1 - 1/W) * f``, plus 1 at an access: a count that fades with time
    - ``count``: ``f + 1`` at each access: no smoothing, the limit of ``beta = 0``
    """

    weight: int  # alpha, in units of 1 / _ALPHA
    window: int
    smoothing: Smoothing
    beta: float

    def after(self, known: Read | None, now: int) -> Read:
        """What is known of a key after an access at tick ``now``; ``known`` is None when it comes in."""
        if known is None:
            return Read(1.0, now)
        f, gap = known.frequency, now - known.last
        if self.smoothing == "access":
            return Read((1 - self.beta) * f + 1, now)
        if self.smoothing == "rate":
            return Read((1 - self.beta) * f + self.beta * self.window / gap, now)
        if self.smoothing == "tick":
            return Read(f * self.fade(gap) + 1, now)
        return Read(f + 1, now)

    def fade(self, ticks: int) -> float:
        """What is left of a count after so many ticks (``tick`` only)."""
        return (1 - 1 / self.window) ** ticks

    def score(self, read: Read, now: int) -> float:
        """The published score times ``W``, in units of ``1 / (_ALPHA * _FINE)``; an exact integer but for ``tick``."""
        recency = max(0, self.window - (now - read.last)) * (_ALPHA - self.weight) * _FINE
        if self.smoothing == "tick":
            return self.weight * _FINE * (read.frequency * self.fade(now - read.last)) + recency  # f < W by itself
        return self.weight * min(round(read.frequency * _FINE), self.window * _FINE) + recency


class _Young(Protocol):
    """The keys read less than ``W`` ticks ago, lowest score first; ``put`` replaces."""

    def put(self, key: Hashable, read: Read, now: int) -> None: ...
    def drop(self, key: Hashable, now: int) -> None: ...
    def lowest(self, now: int) -> Hashable | None: ...


class Hybrid:
    """Evicts the lowest score; among equal scores, the key that was read least recently.

    Keys younger than the window differ by both terms, older ones by the first alone; each group keeps its own order,
    and an eviction compares their two lowest. For ``access``, ``rate`` and ``count`` the order inside a group never
    changes between accesses, so two heaps are exact: O(log n) amortised. For ``tick`` the order of the young does
    change, and a kinetic tournament follows it: O(log n) an access plus O(log n) for each change of order.
    """

    def __init__(
        self,
        capacity: int,
        *,
        alpha: float = 0.7,
        window: int = 1000,
        smoothing: Smoothing = "access",
        beta: float = 0.1,
        on_evict: OnEvict = ignore,
    ) -> None:
        if not 0 <= alpha <= 1 or window < 1 or not 0 < beta <= 1:
            raise InvalidInput(
                f"alpha={alpha}, window={window}, beta={beta}: expected alpha in [0, 1], window >= 1, beta in (0, 1]"
            )
        self.capacity = checked_capacity(capacity)
        self.scoring = Scoring(round(alpha * _ALPHA), window, smoothing, beta)
        self._on_evict = on_evict
        self._now = 0
        self._reads: dict[Hashable, Read] = {}
        self._by_age: OrderedDict[Hashable, None] = OrderedDict()  # the young, least recently read first
        self._young: _Young = self._ordered_young()
        self._old = LazyHeap()

    def access(self, key: Hashable) -> bool:
        self._now += 1
        self._let_age()
        known = self._reads.get(key)
        if known is None and len(self._reads) >= self.capacity:
            self._evict()
        if known is not None and key not in self._by_age:
            self._old.drop(key)
        read = self._reads[key] = self.scoring.after(known, self._now)
        self._by_age[key] = None
        self._by_age.move_to_end(key)
        self._young.put(key, read, self._now)
        return known is not None

    def remove(self, key: Hashable) -> None:
        if self._reads.pop(key, None) is None:
            return
        if key in self._by_age:
            del self._by_age[key]
            self._young.drop(key, self._now)
        else:
            self._old.drop(key)

    def _ordered_young(self) -> _Young:
        if self.scoring.smoothing != "tick":
            return _SteadyYoung(self.scoring)
        gain = self.scoring.weight * _FINE, (_ALPHA - self.scoring.weight) * _FINE
        return DecayingYoung(min(self.capacity, self.scoring.window), self.scoring.window, gain)

    def _let_age(self) -> None:
        """Hand over the keys whose recency term has just reached 0; at most one an access in the long run."""
        while self._by_age:
            key = next(iter(self._by_age))
            read = self._reads[key]
            if self._now - read.last < self.scoring.window:
                return
            del self._by_age[key]
            self._young.drop(key, self._now)
            self._old.push(key, self._order_of_old(read), read.last)

    def _order_of_old(self, read: Read) -> float:
        """Where an old key stands among the old ones; fading counts are compared as logarithms, which never run out."""
        if self.scoring.smoothing == "tick" and self.scoring.window > 1:
            return math.log(read.frequency) - read.last * math.log1p(-1 / self.scoring.window)
        return self.scoring.score(read, read.last + self.scoring.window)

    def _evict(self) -> None:
        now = self._now
        tops = [key for key in (self._old.lowest(), self._young.lowest(now)) if key is not None]
        victim = min(tops, key=lambda key: (self.scoring.score(self._reads[key], now), self._reads[key].last))
        self.remove(victim)
        self._on_evict(victim)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._reads

    def __len__(self) -> int:
        return len(self._reads)


class _SteadyYoung:
    """Young keys whose frequency stands still between accesses: all scores fall at one speed, so one heap will do."""

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring
        self._heap = LazyHeap()

    def put(self, key: Hashable, read: Read, now: int) -> None:
        # score as of tick 0 with an endless window: differs from the score at any other tick by the same amount
        base = self._scoring.score(read, read.last + self._scoring.window)
        self._heap.push(key, base + read.last * (_ALPHA - self._scoring.weight) * _FINE, read.last)

    def drop(self, key: Hashable, now: int) -> None:
        self._heap.drop(key)

    def lowest(self, now: int) -> Hashable | None:
        return self._heap.lowest()
