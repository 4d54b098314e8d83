"""Which layers are bypassed together, so that each one's share of a drop can be told from the others'."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from testbed.core.seeds import stream

EXACT_UP_TO = 5  # layers: 32 subsets
PAIRS = 8  # orders beyond, each used forwards and backwards


def subsets(names: Sequence[str]) -> list[frozenset[str]]:
    """All of them, the empty one first, the full one last."""
    return [frozenset(c) for size in range(len(names) + 1) for c in combinations(names, size)]


def orders(names: Sequence[str], *, seed: int, pairs: int = PAIRS) -> list[list[str]]:
    """Random orders of the layers; of each pair, one is the other backwards."""
    rng = stream(seed, "shapley", *names)
    found = [rng.sample(list(names), len(names)) for _ in range(pairs)]
    return [order for forwards in found for order in (forwards, forwards[::-1])]


def needed(names: Sequence[str], *, seed: int) -> list[frozenset[str]]:
    """The subsets that have to be replayed: all of up to five layers, else what the orders go through."""
    if len(names) <= EXACT_UP_TO:
        return subsets(names)
    found = [frozenset(order[:n]) for order in orders(names, seed=seed) for n in range(len(order) + 1)]
    return sorted(dict.fromkeys(found), key=lambda s: (len(s), sorted(s)))
