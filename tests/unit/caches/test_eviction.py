"""Hand-computed decisions of each policy, and the public figures they must reproduce."""

from __future__ import annotations

import math

import pytest

from testbed.caches.eviction import (
    SMOOTHINGS,
    Belady,
    Bounded,
    Fifo,
    FrequencySketch,
    Hybrid,
    Lfu,
    Lru,
    S3Fifo,
    Sieve,
    Ttl,
    WTinyLfu,
    bytes_per_entry,
    simulate,
)
from testbed.core.errors import InvalidInput
from testbed.core.types import Key
from testbed.workloads import keystreams
from tests.dict_cache import DictCache

ONLINE = {
    "fifo": Fifo,
    "lru": Lru,
    "lfu": Lfu,
    "sieve": Sieve,
    "s3-fifo": S3Fifo,
    "w-tinylfu": WTinyLfu,
    **{f"hybrid-{s}": (lambda c, s=s, **kw: Hybrid(c, smoothing=s, **kw)) for s in SMOOTHINGS},
    "ttl": lambda c, **kw: Ttl(c, ttl_s=50, **kw),
    "ttl-sliding": lambda c, **kw: Ttl(c, ttl_s=50, sliding=True, **kw),
}


def evictions(make, trace):
    out = []
    policy = make(on_evict=out.append)
    for key in trace:
        policy.access(key)
    return "".join(out)


def test_fifo_ignores_reads():
    assert evictions(lambda **kw: Fifo(2, **kw), "abaac") == "a"


def test_lru_keeps_what_was_read():
    assert evictions(lambda **kw: Lru(2, **kw), "abac") == "b"


def test_lfu_counts_and_breaks_ties_by_recency():
    # a twice; b and c once each, b read first
    assert evictions(lambda **kw: Lfu(3, **kw), "aabcd") == "b"


def test_lfu_count_ends_with_its_entry():
    # b leaves with count 1 and comes back with count 1, so it is b again (older than nothing else with 1) that goes
    assert evictions(lambda **kw: Lfu(2, **kw), "aabcbd") == "bcb"


def test_lfu_survives_removal_of_its_least_bucket():
    policy = Lfu(2)
    for key in "aab":
        policy.access(key)
    policy.remove("b")
    for key in "ccd":
        policy.access(key)
    assert "d" in policy and len(policy) == 2


def test_sieve_hand_clears_marks_and_goes_on_where_it_stopped():
    # d: the hand clears a and takes b; e: it goes on at c, though a is older and unmarked by now
    assert evictions(lambda **kw: Sieve(3, **kw), "abcade") == "bc"
    # all marked: one round clears them, the oldest goes
    assert evictions(lambda **kw: Sieve(3, **kw), "abcabcd") == "a"


def test_s3_fifo_lets_one_hit_wonders_through_and_remembers_them():
    policy = S3Fifo(10)  # small 1, main 9
    for key in range(11):
        policy.access(key)
    assert 0 not in policy  # the only key of the small queue
    policy.access(0)  # came back: straight to main
    for key in range(100, 108):
        policy.access(key)
    assert 0 in policy


def test_w_tinylfu_refuses_a_scan():
    policy = WTinyLfu(100)
    for _ in range(5):
        for key in range(99):
            policy.access(key)
    for key in range(1000, 1500):
        policy.access(key)
    assert sum(key in policy for key in range(99)) >= 98  # two scan keys can share a counter with a hot one


def test_sketch_never_counts_less_than_the_truth_and_halves_with_age():
    sketch = FrequencySketch(16)
    for _ in range(6):
        sketch.add("hot")
    assert sketch.count("hot") == 6
    for i in range(154):
        sketch.add(i)
    assert 3 <= sketch.count("hot") <= 7


def test_absolute_ttl_expires_what_sliding_ttl_keeps_for_ever():
    now = [0.0]
    absolute = Ttl(4, ttl_s=10, now=lambda: now[0])
    sliding = Ttl(4, ttl_s=10, sliding=True, now=lambda: now[0])
    hits = []
    for now[0] in (0.0, 6.0, 12.0, 18.0):
        hits.append((absolute.access("k"), sliding.access("k")))
    assert hits == [(False, False), (True, True), (False, True), (True, True)]


def test_ttl_when_full_gives_up_what_expires_first():
    assert evictions(lambda **kw: Ttl(2, ttl_s=100, **kw), "abac") == "a"
    assert evictions(lambda **kw: Ttl(2, ttl_s=100, sliding=True, **kw), "abac") == "b"


def test_belady_evicts_what_is_needed_last():
    trace = "abcab"
    assert simulate(Belady(2, trace), trace).hits == 1
    assert simulate(Belady(2, trace, bypass=True), trace).hits == 2  # c is never stored


def test_belady_refuses_another_trace():
    policy = Belady(2, "ab")
    policy.access("a")
    with pytest.raises(InvalidInput, match="request 1"):
        policy.access("c")


def test_hybrid_score_is_the_published_formula():
    policy = Hybrid(4, alpha=0.7, window=1000, smoothing="count")
    read = policy.scoring.after(policy.scoring.after(None, 1), 201)  # f = 2, last = 201
    unit = 1_000_000 * 2**16 * 1000
    assert policy.scoring.score(read, 701) / unit == pytest.approx(0.7 * 2 / 1000 + 0.3 * (1 - 500 / 1000), abs=1e-12)
    assert policy.scoring.score(read, 5000) / unit == pytest.approx(0.7 * 2 / 1000, abs=1e-12)


def test_hybrid_order_of_old_keys_outlives_the_float_range():
    # fading counts would underflow after some 700 windows; the order of what is left must not be lost
    policy = Hybrid(2, window=2, smoothing="tick")
    for key in ["a", "b", *["b"] * 40]:
        policy.access(key)
    assert math.isfinite(policy._order_of_old(policy._reads["b"]))
    for _ in range(3000):
        policy.access("b")
    policy.access("c")
    assert "a" not in policy and "b" in policy


@pytest.mark.parametrize("bad", [{"alpha": 1.5}, {"window": 0}, {"beta": 0}])
def test_hybrid_refuses_parameters_out_of_range(bad):
    with pytest.raises(InvalidInput):
        Hybrid(10, **bad)


@pytest.mark.parametrize("name", ONLINE)
def test_capacity_must_hold_an_entry(name):
    with pytest.raises(InvalidInput, match="capacity=0"):
        ONLINE[name](0)


@pytest.mark.parametrize(("size", "published"), [(50, 30.9), (100, 39.1), (500, 58.6), (1000, 67.5), (2500, 79.9)])
def test_lru_on_zipf_gives_the_public_table(size, published):
    trace = keystreams.zipf(10_000, 1.0, 300_000, seed=42)
    assert 100 * simulate(Lru(size), trace, warmup=30_000).hit_rate == pytest.approx(published, abs=0.2)


def test_memory_per_entry_is_measured():
    costs = {name: bytes_per_entry(make, 200) for name, make in ONLINE.items()}
    assert all(20 < cost < 1200 for cost in costs.values()), costs
    assert costs["fifo"] < costs["hybrid-access"]


def test_bounded_cache_deletes_what_the_policy_gives_up():
    inner = DictCache()
    cache = Bounded(inner, lambda out: Lru(2, on_evict=out))
    a, b, c = (Key.of(text=t) for t in "abc")
    cache.put(a, 1)
    cache.put(b, 2)
    assert cache.get(a) == 1
    cache.put(c, 3)
    assert cache.get(b) is None and b.parts not in inner.entries
    assert (cache.get(a), cache.get(c)) == (1, 3)


def test_bounded_cache_forgets_what_the_cache_inside_lost():
    inner = DictCache()
    cache = Bounded(inner, lambda out: Lru(2, on_evict=out))
    a, b, c = (Key.of(text=t) for t in "abc")
    cache.put(a, 1)
    cache.put(b, 2)
    inner.entries.clear()
    assert cache.get(a) is None and len(cache.policy) == 1
    cache.delete(b)
    cache.put(c, 3)
    assert cache.get(c) == 3 and len(cache.policy) == 1
    assert cache.fresh().get(c) is None


def test_bounded_cache_never_serves_an_older_value_after_a_refused_put():
    cache = Bounded(DictCache(), lambda out: WTinyLfu(1, on_evict=out))
    a, b = Key.of(text="a"), Key.of(text="b")
    cache.put(a, 1)
    cache.put(b, 2)
    cache.put(a, 3)
    assert cache.get(a) in (None, 3)
