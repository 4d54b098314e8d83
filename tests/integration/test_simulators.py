"""The eviction simulators against an independent implementation, hit for hit, on made-up streams and on real traces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testbed.caches.eviction import Belady, Fifo, Lfu, Lru, S3Fifo, Sieve, simulate
from testbed.workloads import keystreams, traces

libcachesim = pytest.importorskip("libcachesim", reason="libcachesim (the oracle) is not installed")

DATA = Path(os.environ.get("TESTBED_SHARED_DATA", Path(__file__).parents[2] / "../shared/data"))
PAIRS = {
    "lru": (Lru, libcachesim.LRU),
    "fifo": (Fifo, libcachesim.FIFO),
    "lfu": (Lfu, libcachesim.LFU),
    "sieve": (Sieve, libcachesim.Sieve),
    "s3-fifo": (S3Fifo, libcachesim.S3FIFO),
}
MADE_UP = {  # three that need no data beside the repository
    "zipf": lambda: keystreams.zipf(5000, 0.9, 30_000, seed=7),
    "drifting": lambda: keystreams.drifting(5000, 0.9, 30_000, seed=8, every=3000, by=400),
    "scanned": lambda: [  # libcachesim takes no negative key
        key + 100_000 for key in keystreams.polluted(keystreams.zipf(5000, 1.1, 20_000, seed=9), "scan", 0.3, seed=9)
    ],
}
SIZES = (37, 100, 999, 2500)  # two of them are not multiples of ten: rounding of the small queue counts


def trace_of(name):
    if name in MADE_UP:
        return MADE_UP[name]()
    if not DATA.is_dir():
        pytest.skip("the public traces are not there (TESTBED_SHARED_DATA)")
    if name == "cache2k_web":
        return traces.cache2k_web(DATA / "cache2k_web")[:40_000]
    return traces.lirs(DATA / "lirs_traces", name)


def oracle_hits(make, size, trace):
    cache, request = make(cache_size=size, hashpower=16), libcachesim.Request()
    request.obj_size = 1
    hits = 0
    for key in trace:
        request.obj_id = key
        hits += cache.get(request)
    return hits


@pytest.mark.parametrize("trace", [*MADE_UP, "cache2k_web", "multi2", "ps", "cpp"])
@pytest.mark.parametrize("policy", PAIRS)
def test_hit_counts_equal_those_of_libcachesim(policy, trace):
    keys = trace_of(trace)
    ours, theirs = PAIRS[policy]
    counted = {size: simulate(ours(size), keys).hits for size in SIZES}
    assert 0 < counted[SIZES[0]] < counted[SIZES[-1]] < len(keys)
    assert counted == {size: oracle_hits(theirs, size, keys) for size in SIZES}


@pytest.mark.parametrize("trace", ["zipf", "multi2"])
def test_the_optimum_equals_that_of_libcachesim(trace):
    keys = trace_of(trace)[:10_000]
    cache, request = libcachesim.Belady(cache_size=500, hashpower=16), libcachesim.Request()
    request.obj_size = 1
    after = dict.fromkeys(keys, 2**62)
    uses = []
    for at in range(len(keys) - 1, -1, -1):
        uses.append(after[keys[at]])
        after[keys[at]] = at
    hits = 0
    for key, use in zip(keys, reversed(uses), strict=True):
        request.obj_id, request.next_access_vtime = key, use
        hits += cache.get(request)
    assert simulate(Belady(500, keys), keys).hits == hits
