"""Requests per second of the eviction policies, beside libraries that do the same. Compare on one machine only."""

from __future__ import annotations

import importlib

import pytest

from testbed.caches.eviction import SMOOTHINGS, Belady, Fifo, Hybrid, Lfu, Lru, S3Fifo, Sieve, Ttl, WTinyLfu, replay
from testbed.workloads import keystreams

SIZE, N = 1000, 20_000
TRACE = keystreams.zipf(10_000, 1.0, N, seed=1)
OURS = {
    "fifo": lambda: Fifo(SIZE),
    "lru": lambda: Lru(SIZE),
    "lfu": lambda: Lfu(SIZE),
    "sieve": lambda: Sieve(SIZE),
    "s3-fifo": lambda: S3Fifo(SIZE),
    "w-tinylfu": lambda: WTinyLfu(SIZE),
    **{f"hybrid-{s}": (lambda s=s: Hybrid(SIZE, smoothing=s)) for s in SMOOTHINGS},
    "ttl": lambda: Ttl(SIZE, ttl_s=5000),
    "belady": lambda: Belady(SIZE, TRACE),
}


def report(benchmark, hits):
    benchmark.extra_info["requests_per_second"] = N / benchmark.stats.stats.median if benchmark.stats else None
    benchmark.extra_info["hit_rate"] = hits / N


@pytest.mark.parametrize("name", OURS)
def test_policy(benchmark, name):
    benchmark.group = "policies"
    flags = benchmark.pedantic(replay, setup=lambda: ((OURS[name](), TRACE), {}), rounds=3)
    assert 0.4 < sum(flags) / N < 0.9
    report(benchmark, sum(flags))


@pytest.mark.parametrize("name", ["LRUCache", "LFUCache", "FIFOCache"])
def test_cachetools(benchmark, name):
    cachetools = pytest.importorskip("cachetools", reason="cachetools is not installed")
    benchmark.group = "policies"

    def play(cache):
        hits = 0
        for key in TRACE:
            if cache.get(key) is None:
                cache[key] = True
            else:
                hits += 1
        return hits

    hits = benchmark.pedantic(play, setup=lambda: ((getattr(cachetools, name)(SIZE),), {}), rounds=3)
    ours = {"LRUCache": Lru, "LFUCache": Lfu, "FIFOCache": Fifo}[name]
    if name != "LFUCache":  # which of equal counts goes is left open there
        assert hits == sum(replay(ours(SIZE), TRACE))
    report(benchmark, hits)


def test_theine(benchmark):
    theine = pytest.importorskip("theine", reason="theine is not installed")
    benchmark.group = "policies"

    def play(cache):
        hits = 0
        for key in TRACE:
            _, found = cache.get(key)
            hits += found
            if not found:
                cache.set(key, True)
        return hits

    caches = []

    def fresh():
        caches.append(theine.Cache(SIZE))
        return (caches[-1],), {}

    hits = benchmark.pedantic(play, setup=fresh, rounds=3)
    for cache in caches:
        cache.close()
    report(benchmark, hits)


@pytest.mark.parametrize("name", ["LRU", "LFU", "FIFO", "Sieve", "S3FIFO", "WTinyLFU"])
def test_libcachesim(benchmark, name):
    libcachesim = pytest.importorskip("libcachesim", reason="libcachesim is not installed")
    benchmark.group = "policies"

    def play(cache):
        request = libcachesim.Request()
        request.obj_size = 1
        hits = 0
        for key in TRACE:
            request.obj_id = key
            hits += cache.get(request)
        return hits

    make = getattr(libcachesim, name)
    hits = benchmark.pedantic(play, setup=lambda: ((make(cache_size=SIZE, hashpower=16),), {}), rounds=3)
    report(benchmark, hits)


def played_by_cachetools(cache):
    for key in TRACE:
        if cache.get(key) is None:
            cache[key] = True


def played_by_theine(cache):
    for key in TRACE:
        if not cache.get(key)[1]:
            cache.set(key, True)


def played_by_libcachesim(cache):
    request = importlib.import_module("libcachesim").Request()
    request.obj_size = 1
    for key in TRACE:
        request.obj_id = key
        cache.get(request)


PLAYS = {"cachetools": played_by_cachetools, "theine": played_by_theine, "libcachesim": played_by_libcachesim}
THEIRS = [
    *(("cachetools", ours, name) for ours, name in (("lru", "LRUCache"), ("lfu", "LFUCache"), ("fifo", "FIFOCache"))),
    ("theine", "w-tinylfu", "Cache"),
    *(("libcachesim", ours, name) for ours, name in (("lru", "LRU"), ("lfu", "LFU"), ("fifo", "FIFO"))),
    *(("libcachesim", ours, name) for ours, name in (("sieve", "Sieve"), ("s3-fifo", "S3FIFO"))),
]


@pytest.mark.parametrize(("library", "name", "theirs"), THEIRS)
def test_policy_beside_a_library(benchmark, beside, library, name, theirs):
    """The same policy on the same stream; theine's is W-TinyLFU with timers, and libcachesim's are in C."""
    make = getattr(pytest.importorskip(library, reason=f"{library} is not installed"), theirs)
    benchmark.group = f"policies beside {library}"
    opened = []

    def fresh():
        opened.append(make(cache_size=SIZE, hashpower=16) if library == "libcachesim" else make(SIZE))
        return OURS[name](), opened[-1]

    beside(
        lambda ours, _: replay(ours, TRACE),
        lambda _, cache: PLAYS[library](cache),
        fresh,
        rounds=7,
        requests=len(TRACE),
    )
    if library == "theine":
        for cache in opened:
            cache.close()
