"""What a stack's caches hold is counted wherever a wrapper keeps it, once, and to the byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from testbed.caches import codec
from testbed.caches.memory import MemoryCache
from testbed.caches.semantic import SemanticCache
from testbed.caches.tiered import TieredCache
from testbed.core.types import Key
from testbed.fixes.partition import CachePerTenant
from testbed.stacks.held import held_bytes

KEY = Key.of(text="größe", tenant="a")  # names 4 + 6, values 7 (two of the letters take two bytes) + 1
VALUE = "thirty"  # 8 of expiry, 1 of form, 8 of JSON


class EmptyServer:
    def scan_iter(self, **asked: object) -> Iterator[bytes]:
        return iter(())


class Service:
    def __init__(self, **layers: Any) -> None:
        self.layers = layers


def test_an_entry_takes_its_key_and_its_value() -> None:
    cache = MemoryCache()
    cache.put(KEY, VALUE)
    assert cache.held_bytes == 18 + 17
    cache.delete(KEY)
    assert cache.held_bytes == 0


def test_a_semantic_entry_also_takes_its_vector() -> None:
    cache = SemanticCache(lambda text: np.ones(4, dtype=np.float32) / 2, 0.5, lambda a, b: True)
    cache.put(KEY, VALUE)
    assert cache.held_bytes == 18 + 17 + 4 * 4
    assert codec.key_bytes(KEY) == 18


def test_two_layers_that_share_a_cache_count_it_once() -> None:
    shared = MemoryCache()
    shared.put(KEY, VALUE)
    assert held_bytes(Service(answer=shared, text=shared), EmptyServer(), "ns:") == 35


def test_what_a_fix_keeps_in_parts_of_its_own_is_found() -> None:
    cache = CachePerTenant(MemoryCache(), lambda: None)
    for tenant in "ab":
        cache.put(KEY.replace(tenant=tenant), VALUE)
    assert held_bytes(Service(answer=TieredCache({"l1": cache})), EmptyServer(), "ns:") == 2 * 35
