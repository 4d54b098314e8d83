from __future__ import annotations

from testbed.caches.memory import MemoryCache
from testbed.caches.tiered import TieredCache
from testbed.core.types import Key

A = Key.of(text="a")


def test_a_put_reaches_every_tier_and_a_get_asks_them_in_order() -> None:
    l1, l2 = MemoryCache(), MemoryCache()
    cache = TieredCache({"l1": l1, "l2": l2})
    cache.put(A, "both")
    l1.put(A, "first")
    assert l2.get(A) == "both"
    assert cache.get(A) == "first"
    l1.delete(A)
    assert cache.get(A) == "both"


def test_a_hit_further_down_is_not_copied_up() -> None:
    l1, l2 = MemoryCache(), MemoryCache()
    cache = TieredCache({"l1": l1, "l2": l2})
    l2.put(A, "below")
    assert cache.get(A) == "below"
    assert l1.get(A) is None


def test_a_delete_reaches_every_tier() -> None:
    l1, l2 = MemoryCache(), MemoryCache()
    cache = TieredCache({"l1": l1, "l2": l2})
    cache.put(A, 1)
    cache.delete(A)
    assert (l1.get(A), l2.get(A)) == (None, None)


def test_a_tier_can_be_replaced_by_its_name() -> None:
    cache = TieredCache({"l1": MemoryCache(), "l2": MemoryCache()})
    cache.put(A, 1)
    cache.tiers["l1"] = cache.tiers["l2"] = MemoryCache()
    assert cache.get(A) is None
