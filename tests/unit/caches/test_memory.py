from __future__ import annotations

import pytest

from testbed.caches.memory import MemoryCache
from testbed.core.clock import LogicalClock
from testbed.core.errors import InvalidInput
from testbed.core.types import Key

A, B, C = (Key.of(text=t) for t in "abc")


def test_the_entry_used_longest_ago_goes_first() -> None:
    cache = MemoryCache(2)
    cache.put(A, 1)
    cache.put(B, 2)
    assert cache.get(A) == 1  # A is now younger than B
    cache.put(C, 3)
    assert [cache.get(k) for k in (A, B, C)] == [1, None, 3]
    assert len(cache) == 2


def test_replacing_an_entry_evicts_nobody() -> None:
    cache = MemoryCache(2)
    cache.put(A, 1)
    cache.put(B, 2)
    cache.put(A, 3)
    assert [cache.get(k) for k in (A, B)] == [3, 2]


def test_time_to_live_counts_from_the_put() -> None:
    clock = LogicalClock()
    cache = MemoryCache(clock=clock)
    clock.move_to(5.0)
    cache.put(A, 1, ttl_s=2.0)
    clock.move_to(6.5)
    assert cache.get(A) == 1
    clock.move_to(7.0)
    assert cache.get(A) is None


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_capacity_below_one_is_refused(capacity: int) -> None:
    with pytest.raises(InvalidInput, match=f"capacity={capacity}"):
        MemoryCache(capacity)
