"""Every cache is a dict with losses (the docstring of ``core.ports.Cache``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from testbed.caches.memory import MemoryCache
from testbed.caches.null import NullCache
from testbed.caches.redis import RedisCache
from testbed.caches.rekeyed import Rekeyed
from testbed.caches.semantic import SemanticCache
from testbed.caches.tiered import TieredCache
from testbed.core.clock import LogicalClock
from testbed.core.ports import Cache, Vectors
from testbed.core.types import Key
from testbed.run.services import RedisService
from tests.contract.dict_with_losses import ALIKE, KEYS, Step, asks_the_same, check, steps

Make = Callable[[LogicalClock], Cache]
_n = itertools.count()
EXACT = ("memory", "memory-of-2", "redis", "tiered", "null")
SEMANTIC = ("semantic", "semantic-of-2", "tiered-semantic")


def embed(text: str) -> Vectors:
    return np.array(ALIKE[text], dtype=np.float32)


def semantic(clock: LogicalClock, capacity: int | None = None) -> SemanticCache:
    return SemanticCache(embed, 0.9, lambda a, b: ALIKE[a] == ALIKE[b], capacity, clock)


def makers(service: RedisService) -> dict[str, Make]:
    def redis(clock: LogicalClock) -> RedisCache:
        return RedisCache(service.client, f"{service.namespace}contract{next(_n)}:", clock)

    return {
        "memory": lambda clock: MemoryCache(clock=clock),
        "memory-of-2": lambda clock: MemoryCache(2, clock),
        "redis": redis,
        "tiered": lambda clock: TieredCache({"l1": MemoryCache(1, clock), "l2": redis(clock)}),
        "null": lambda clock: NullCache(),
        "semantic": semantic,
        "semantic-of-2": lambda clock: semantic(clock, 2),
        "tiered-semantic": lambda clock: TieredCache({"l1": redis(clock), "l2": semantic(clock)}),
    }


@pytest.mark.parametrize("name", EXACT)
@settings(max_examples=40, deadline=None)
@given(sequence=steps())
def test_an_exact_cache_is_a_dict_with_losses(name: str, sequence: list[Step], redis_service: RedisService) -> None:
    clock = LogicalClock()
    check(makers(redis_service)[name](clock), clock, sequence)


@pytest.mark.parametrize("name", SEMANTIC)
@settings(max_examples=40, deadline=None)
@given(sequence=steps())
def test_a_semantic_cache_answers_for_other_words_only(
    name: str, sequence: list[Step], redis_service: RedisService
) -> None:
    clock = LogicalClock()
    check(makers(redis_service)[name](clock), clock, sequence, asks_the_same)


@pytest.mark.parametrize("name", [n for n in (*EXACT, *SEMANTIC) if n != "null"])
def test_what_was_put_last_is_found(name: str, redis_service: RedisService) -> None:
    clock = LogicalClock()
    cache = makers(redis_service)[name](clock)
    for value in ("old", "new"):
        cache.put(KEYS[0], value)
    assert cache.get(KEYS[0]) == "new"
    cache.delete(KEYS[0])
    assert cache.get(KEYS[0]) is None


@pytest.mark.parametrize("name", [n for n in (*EXACT, *SEMANTIC) if n != "null"])
def test_an_entry_ends_at_its_logical_second_and_not_before(name: str, redis_service: RedisService) -> None:
    clock = LogicalClock()
    cache = makers(redis_service)[name](clock)
    cache.put(KEYS[0], "value", ttl_s=10.0)
    clock.move_to(9.999)
    assert cache.get(KEYS[0]) == "value"
    clock.move_to(10.0)
    assert cache.get(KEYS[0]) is None


def _without_tenant(key: Key) -> Key:
    return key.without("tenant")


class _Stale(MemoryCache):
    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        if self.get(key) is None:
            super().put(key, value, ttl_s=ttl_s)


class _Shared(MemoryCache):
    """Hands out the very object it holds."""

    def __init__(self) -> None:
        super().__init__()
        self._objects: dict[Key, Any] = {}

    def get(self, key: Key) -> Any | None:
        return self._objects.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._objects[key] = value


A, B = Key.of(text="t", tenant="a"), Key.of(text="t", tenant="b")


@pytest.mark.parametrize(
    ("broken", "sequence"),
    [
        (Rekeyed(MemoryCache(), _without_tenant), [Step("put", A, "of a"), Step("get", B)]),
        (_Stale(), [Step("put", A, 1), Step("put", A, 2), Step("get", A)]),
        (_Shared(), [Step("put", A, [1]), Step("get", A)]),
        (MemoryCache(), [Step("put", A, "v", 1.0), Step("wait", A), Step("get", A)]),
    ],
    ids=["drops-the-tenant", "keeps-the-old-value", "shares-its-objects", "forgets-to-expire"],
)
def test_the_contract_catches_a_broken_cache(broken: Cache, sequence: list[Step]) -> None:
    # The last cache was given no clock, so that its own stands still while the test's moves on.
    with pytest.raises(AssertionError):
        check(broken, LogicalClock(), sequence)
