"""Two levels of one cache that do not move together, and a second level that takes words for meanings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.caches.memory import MemoryCache
from testbed.caches.normal_form import ClusterCache
from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.faults.reordering import Delayed
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class LateMerge:
    """The second level is filled in batches, ``delay_s`` late; what is invalidated meanwhile arrives all the same.

    References
    ----------
    The published two-level design: write-through L1, batched asynchronous merges into L2.
    """

    delay_s: float = 60.0
    name: str = "late-merge"
    needs: frozenset[str] = frozenset({"tiers"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def bites(key: Key) -> bool:
            return ctx.affects(self.name, key.get("text"))

        with wrapping.tier(stack, "l2", lambda inner: Delayed(inner, self.delay_s, ctx, bites)):
            yield


@dataclass(frozen=True, slots=True)
class FirstLevelKept:
    """An invalidation clears the second level and forgets the first, which is asked first.

    References
    ----------
    steemit/jussi PR #259: what one tier has dropped is stuck in the other.
    """

    name: str = "first-level-kept"
    needs: frozenset[str] = frozenset({"tiers"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with wrapping.tier(stack, "l1", lambda inner: _Kept(inner, ctx, self.name)):
            yield


class _Kept:
    def __init__(self, inner: Cache, ctx: Context, name: str) -> None:
        self._inner = inner
        self._ctx = ctx
        self._name = name

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        if not self._ctx.affects(self._name, key.get("text")):
            self._inner.delete(key)

    def fresh(self) -> _Kept:
        return _Kept(self._inner.fresh(), self._ctx, self._name)


@dataclass(frozen=True, slots=True)
class PublishedLevel:
    """The second level goes by stems, synonyms and clusters of intents: the published one (``caches.normal_form``).

    The level is the share of texts that are looked up that way; the others keep the stack's second level.
    """

    name: str = "stems-and-synonyms"
    needs: frozenset[str] = frozenset({"tiers"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def bites(key: Key) -> bool:
            return ctx.affects(self.name, key.get("text"))

        with wrapping.tier(stack, "l2", lambda inner: _Either(inner, ClusterCache(MemoryCache()), bites)):
            yield


class _Either:
    """One of two caches, by key."""

    def __init__(self, usual: Cache, other: Cache, takes_other: Callable[[Key], bool]) -> None:
        self._usual = usual
        self._other = other
        self._takes_other = takes_other

    def _of(self, key: Key) -> Cache:
        return self._other if self._takes_other(key) else self._usual

    def get(self, key: Key) -> Any | None:
        return self._of(key).get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._of(key).put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._of(key).delete(key)

    def fresh(self) -> _Either:
        return _Either(self._usual.fresh(), self._other.fresh(), self._takes_other)
