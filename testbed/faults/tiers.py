"""Two levels of one cache that do not move together, and a second level that takes words for meanings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.caches.memory import MemoryCache
from testbed.caches.normal_form import ClusterCache
from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping


class Delayed:
    """A cache that what is put reaches only after a while; a delete in between does not call it back.

    ``flush`` brings what waits at once.
    """

    def __init__(self, inner: Cache, delay_s: float, ctx: Context, bites: Callable[[Key], bool]) -> None:
        self._inner = inner
        self._delay_s = delay_s
        self._ctx = ctx
        self._bites = bites
        self._waiting: dict[int, Callable[[], None]] = {}
        self._count = 0

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        if not self._bites(key):
            self._inner.put(key, value, ttl_s=ttl_s)
            return
        self._count += 1
        ticket = self._count
        self._waiting[ticket] = lambda: self._inner.put(key, value, ttl_s=ttl_s)
        self._ctx.schedule(self._ctx.now() + self._delay_s, lambda: self._arrive(ticket))

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def flush(self) -> None:
        for ticket in list(self._waiting):
            self._arrive(ticket)

    def fresh(self) -> Delayed:
        return Delayed(self._inner.fresh(), self._delay_s, self._ctx, self._bites)

    def _arrive(self, ticket: int) -> None:
        put = self._waiting.pop(ticket, None)
        if put is not None:
            put()


@dataclass(frozen=True, slots=True)
class LateMerge:
    """The second level is filled in batches, ``delay_s`` late; an entry that is invalidated meanwhile arrives all the same.

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


@dataclass(frozen=True, slots=True)
class SlowFill:
    """An answer takes ``delay_s`` to reach the cache. When its documents change meanwhile, the old one is put in after all.

    The invalidation finds nothing to delete, and a newer answer that is there by then is replaced. The level is the
    share of questions whose fill is slow.

    References
    ----------
    rust-self-learning-memory #964 (no single flight, a leader that is overtaken), replayed as a reordering of
    operations in logical time.
    """

    delay_s: float = 60.0
    name: str = "slow-fill"
    needs: frozenset[str] = frozenset({"layers.answer"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def bites(key: Key) -> bool:
            return ctx.affects(self.name, key.get("text"))

        return wrapping.cache(stack, "answer", lambda inner: Delayed(inner, self.delay_s, ctx, bites))


@dataclass(frozen=True, slots=True)
class VerdictKey:
    """The judge's verdicts are cached by the entry alone, without the state of the documents that it was shown.

    A verdict "fresh" then outlives what it was about. The level is the share of questions whose verdicts lose it.
    """

    name: str = "verdict-without-context"
    needs: frozenset[str] = frozenset({"judgments"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def named(inner: Callable[..., str]) -> Callable[..., str]:
            def name_of(key: Key, read_from: Any, current: Any) -> str:
                return inner(key, read_from, () if ctx.affects(self.name, key.get("text")) else current)

            return name_of

        with wrapping.attribute(wrapping.part(stack, "judgments"), "name_of", named):
            yield
