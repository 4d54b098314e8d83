"""The reference stack with chance in it: what the gate makes of a stack that is not deterministic.

    PYTHONPATH=scripts STACK=noisy_stack:build python -m testbed power --seeds 1-3

Its caches lose entries as one does under memory pressure, and its index misses the best row now and then, as an
approximate one does. Both are drawn anew at every call, whatever the seed: two runs of one seed are two samples.
"""

from __future__ import annotations

import random
from typing import Any

from testbed.core.ports import Cache, Hit, Vectors
from testbed.core.types import Key
from testbed.stacks.parts import Parts
from testbed.stacks.reference import ReferenceStack
from testbed.stacks.reference import build as reference
from testbed.stacks.wrapping import ForwardedIndex

LOST, MISSED = 0.20, 0.02  # share of cache reads that find nothing, share of searches without their best row
_chance = random.SystemRandom()


class Leaky:
    """A cache of which a share of the reads find nothing, the second read of the same entry perhaps again."""

    def __init__(self, inner: Cache) -> None:
        self._inner = inner

    def get(self, key: Key) -> Any | None:
        return None if _chance.random() < LOST else self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> Leaky:
        return Leaky(self._inner.fresh())


class Approximate(ForwardedIndex):
    """An index that does not return its best row in a share of the searches."""

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        missed = int(_chance.random() < MISSED)
        return self._inner.search(vector, tenant=tenant, k=k + missed, made_by=made_by)[missed:]

    def fresh(self) -> Approximate:
        return Approximate(self._inner.fresh())


def build(parts: Parts) -> ReferenceStack:
    """A reference stack that loses cache entries and best rows by chance; it does not call itself deterministic."""
    stack = reference(parts)
    for layer in ("answer", "retrieval", "embedding"):
        stack.layers[layer] = Leaky(stack.layers[layer])
    stack.index = Approximate(stack.index)
    return stack
