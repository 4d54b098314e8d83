"""What holds of every policy on every trace."""

from __future__ import annotations

import itertools
from fractions import Fraction
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.caches.eviction import (
    SMOOTHINGS,
    Belady,
    Bounded,
    Fifo,
    Hybrid,
    Lfu,
    Lru,
    S3Fifo,
    Sieve,
    Ttl,
    WTinyLfu,
    replay,
    simulate,
)
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


TRACES = st.lists(st.integers(0, 12), max_size=120)
CAPACITIES = st.integers(1, 9)


@pytest.mark.parametrize("name", ONLINE)
@given(trace=TRACES, capacity=CAPACITIES)
@settings(max_examples=40, deadline=None)
def test_a_policy_holds_its_bound_and_accounts_for_every_key(name, trace, capacity):
    gone = []
    policy = ONLINE[name](capacity, on_evict=gone.append)
    held = set()
    for key in trace:
        expected = key in policy
        hit = policy.access(key)
        assert hit == expected
        assert not hit or key in held
        held.add(key)
        held.difference_update(gone)
        gone.clear()
        assert len(policy) <= capacity
        assert {k for k in range(13) if k in policy} <= held
        assert len(policy) == len(held)


@pytest.mark.parametrize("name", ONLINE)
@given(trace=TRACES, capacity=CAPACITIES, removed=st.lists(st.integers(0, 119), max_size=10))
@settings(max_examples=40, deadline=None)
def test_a_removed_key_is_gone_and_harms_nothing(name, trace, capacity, removed):
    policy = ONLINE[name](capacity)
    for at, key in enumerate(trace):
        policy.access(key)
        if at in removed:
            policy.remove(key)
            assert key not in policy
        assert len(policy) <= capacity


@pytest.mark.parametrize("name", ONLINE)
@given(trace=TRACES, capacity=CAPACITIES)
@settings(max_examples=40, deadline=None)
def test_no_policy_passes_belady(name, trace, capacity):
    best = simulate(Belady(capacity, trace, bypass=True), trace).hits
    assert simulate(ONLINE[name](capacity), trace).hits <= best
    assert simulate(Belady(capacity, trace), trace).hits <= best


@given(trace=st.lists(st.integers(0, 5), max_size=12), capacity=st.integers(1, 3), bypass=st.booleans())
@settings(max_examples=80, deadline=None)
def test_belady_is_the_best_of_all_choices(trace, capacity, bypass):
    @lru_cache(None)
    def best(at, held):
        if at == len(trace):
            return 0
        key = trace[at]
        if key in held:
            return 1 + best(at + 1, held)
        if len(held) < capacity:
            return best(at + 1, held | {key})
        choices = [best(at + 1, (held - {out}) | {key}) for out in held]
        return max([*choices, best(at + 1, held)] if bypass else choices)

    assert simulate(Belady(capacity, trace, bypass=bypass), trace).hits == best(0, frozenset())


def frequency(smoothing, beta, window, times):
    """f after accesses at these ticks, from the text of each reading."""
    f = 1.0
    for before, at in itertools.pairwise(times):
        if smoothing == "access":
            f = (1 - beta) * f + 1
        elif smoothing == "rate":
            f = (1 - beta) * f + beta * window / (at - before)
        elif smoothing == "tick":
            f = f * (1 - 1 / window) ** (at - before) + 1
        else:
            f += 1
    return f


def brute_force(trace, capacity, alpha, window, smoothing, beta):
    """Hits and victims when every score is computed at every eviction."""
    held, victims, hits = {}, [], 0
    for now, key in enumerate(trace, 1):
        hits += key in held
        if key not in held and len(held) == capacity:

            def score(k, now=now):
                last = held[k][-1]
                f = frequency(smoothing, beta, window, held[k])
                if smoothing == "tick":
                    f, a = f * (1 - 1 / window) ** (now - last), alpha
                else:
                    f, a = Fraction(round(f * 2**16), 2**16), Fraction(round(alpha * 10**6), 10**6)
                recent = (
                    max(0, 1 - (now - last) / window)
                    if smoothing == "tick"
                    else max(Fraction(0), 1 - Fraction(now - last, window))
                )
                return a * min(f / window, 1) + (1 - a) * recent, last

            victim = min(held, key=score)
            del held[victim]
            victims.append(victim)
        held.setdefault(key, []).append(now)
    return hits, victims


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize(("capacity", "window"), [(5, 20), (25, 20), (25, 300)])
def test_hybrid_agrees_with_computing_every_score(smoothing, capacity, window):
    trace = keystreams.zipf(120, 0.8, 700, seed=3)
    victims = []
    policy = Hybrid(capacity, window=window, smoothing=smoothing, on_evict=victims.append)
    hits = sum(replay(policy, trace))
    assert (hits, victims) == brute_force(trace, capacity, 0.7, window, smoothing, 0.1)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@given(
    trace=TRACES,
    capacity=CAPACITIES,
    window=st.integers(1, 60),
    alpha=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    beta=st.sampled_from([0.1, 0.5, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_hybrid_evicts_the_lowest_score(smoothing, trace, capacity, window, alpha, beta):
    victims = []
    policy = Hybrid(capacity, alpha=alpha, window=window, smoothing=smoothing, beta=beta, on_evict=victims.append)
    hits = sum(replay(policy, trace))
    if smoothing == "tick" and alpha in (0.0, 1.0):
        return  # all-float ties: covered by the integer readings
    assert (hits, victims) == brute_force(trace, capacity, alpha, window, smoothing, beta)


@given(trace=TRACES, capacity=CAPACITIES)
def test_hybrid_without_frequency_and_with_a_long_window_is_lru(trace, capacity):
    assert replay(Hybrid(capacity, alpha=0.0, window=1000), trace) == replay(Lru(capacity), trace)


@given(trace=TRACES, capacity=CAPACITIES)
def test_hybrid_without_recency_or_smoothing_is_lfu(trace, capacity):
    hybrid = Hybrid(capacity, alpha=1.0, window=1000, smoothing="count")
    assert replay(hybrid, trace) == replay(Lfu(capacity), trace)


STEPS = st.lists(st.tuples(st.sampled_from("gpd"), st.integers(0, 7)), max_size=80)


@pytest.mark.parametrize("make", [Fifo, Lru, Lfu, Sieve, S3Fifo, WTinyLfu, Hybrid])
@given(steps=STEPS, capacity=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_bounded_cache_is_a_dict_with_losses(make, steps, capacity):
    inner, model = DictCache(), {}
    cache = Bounded(inner, lambda out: make(capacity, on_evict=out))
    for value, (do, name) in enumerate(steps):
        key = Key.of(text=str(name))
        if do == "g":
            assert cache.get(key) in (None, model.get(name))
        elif do == "p":
            cache.put(key, value)
            model[name] = value
        else:
            cache.delete(key)
            model.pop(name, None)
        assert len(inner.entries) <= capacity


@given(trace=TRACES, capacity=CAPACITIES, ttl=st.integers(1, 40))
def test_an_absolute_ttl_serves_nothing_older_than_itself(trace, capacity, ttl):
    policy = Ttl(capacity, ttl_s=ttl)
    written = {}
    for now, key in enumerate(trace, 1):
        if policy.access(key):
            assert now - written[key] < ttl
        else:
            written[key] = now
