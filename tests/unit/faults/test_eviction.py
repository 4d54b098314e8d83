from __future__ import annotations

from typing import Any

import pytest

from testbed.caches.eviction import Fifo, Lru, replay
from testbed.faults.eviction import BrokenLru
from testbed.workloads.keystreams import drifting, zipf

KEYS = [str(k) for k in zipf(400, 1.0, 4000, seed=3)]
# What is popular changes as a whole now and then, as keys do when a corpus changes its state.
MOVING = [str(k) for k in drifting(2000, 1.0, 4000, seed=3, every=400, by=50)]


def broken(bug: Any, bites: bool = True) -> BrokenLru:
    return BrokenLru(32, bug, lambda key: bites, lambda key: None)


@pytest.mark.parametrize("bug", ["fifo", "new-first", "over-evict"])
def test_a_bug_that_touches_no_key_leaves_lru(bug: Any) -> None:
    assert replay(broken(bug, bites=False), KEYS) == replay(Lru(32), KEYS)


def test_lru_without_touches_is_fifo() -> None:
    assert replay(broken("fifo"), KEYS) == replay(Fifo(32), KEYS)


@pytest.mark.parametrize("bug", ["fifo", "new-first", "over-evict"])
def test_every_bug_costs_hits_and_keeps_the_bound(bug: Any) -> None:
    policy = broken(bug)
    assert sum(replay(policy, MOVING)) < sum(replay(Lru(32), MOVING))
    assert len(policy) <= 32


def test_a_new_entry_that_counts_as_never_used_is_the_next_to_go() -> None:
    policy = broken("new-first")
    replay(policy, [str(n) for n in range(40)])
    assert "39" in policy and "38" not in policy and "5" in policy
