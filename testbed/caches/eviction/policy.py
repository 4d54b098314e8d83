"""What an eviction policy is, how a trace is played through one, and what one costs in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from testbed.core.errors import InvalidInput

OnEvict: TypeAlias = Callable[[Hashable], None]


class Policy(Protocol):
    """Decides which keys stay: at most ``capacity`` of them, one entry each.

    1. ``access(key)`` is True when the key is held (a hit). Otherwise the key comes in, others may have to go, and
       the answer is False.
    2. ``key in policy`` says what ``access`` would answer now, and changes nothing. ``len(policy) <= capacity`` always.
    3. A key that leaves by the policy's own decision is given to ``on_evict`` once, a removed one is not.
    4. ``remove`` of a key that is not held does nothing.
    5. The same accesses give the same decisions, on every machine: no clock, no random draw, no builtin ``hash`` in a
       decision. Keys are strings, integers or tuples of these.
    """

    @property
    def capacity(self) -> int: ...
    def access(self, key: Hashable) -> bool: ...
    def remove(self, key: Hashable) -> None: ...
    def __contains__(self, key: Hashable) -> bool: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Simulation:
    """Outcome of a trace: requests counted (after the warm-up), and how many of them were hits."""

    requests: int
    hits: int

    @property
    def hit_rate(self) -> float:
        """Share in [0, 1]; 0.0 for an empty trace."""
        return self.hits / self.requests if self.requests else 0.0


def ignore(_: Hashable) -> None:
    """The ``on_evict`` of someone who does not care."""


def checked_capacity(capacity: int) -> int:
    if capacity < 1:
        raise InvalidInput(f"capacity={capacity} must be >= 1 entry (eviction policy)")
    return capacity


def replay(policy: Policy, trace: Iterable[Hashable]) -> bytearray:
    """One byte a request, in order: 1 for a hit, 0 for a miss."""
    access = policy.access
    return bytearray([access(key) for key in trace])


def simulate(policy: Policy, trace: Iterable[Hashable], *, warmup: int = 0) -> Simulation:
    """Play a trace; the first ``warmup`` requests fill the cache and are not counted."""
    flags = replay(policy, trace)
    counted = flags[warmup:]
    return Simulation(len(counted), sum(counted))


def bytes_per_entry(make: Callable[[int], Policy], n_entries: int = 10_000) -> float:
    """Bytes that a full policy holds for each entry, measured: its own tables and nodes, not the keys.

    Every key is read three times before it is counted, as counters and promotions allocate late. The policy sees
    ``2 * n_entries`` keys, so that ghost lists and sketches are filled too.
    """
    keys = list(range(1_000_000, 1_000_000 + 2 * n_entries))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        policy = make(n_entries)
        for key in keys:
            for _ in range(3):
                policy.access(key)
        held = tracemalloc.get_traced_memory()[0] - before
        return held / len(policy)
    finally:
        tracemalloc.stop()
