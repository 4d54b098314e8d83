"""Entries that live longer than anyone meant: expiry that a read puts off, or that one tier or one mode has not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.caches.memory import MemoryCache
from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping


class Expiring:
    """A cache whose entries live for ``ttl_s`` from their write, or from their last read when ``sliding``.

    A read under another text than the entry's (a semantic level found it) does not start its life again: that would be
    a new entry under that text.
    """

    def __init__(self, inner: Cache, ttl_s: float, bites: Callable[[Key], bool], *, sliding: bool = False) -> None:
        self._inner = inner
        self._ttl_s = ttl_s
        self._bites = bites
        self._sliding = sliding
        self._put: set[Key] = set()

    def get(self, key: Key) -> Any | None:
        value = self._inner.get(key)
        if value is not None and self._sliding and key in self._put and self._bites(key):
            self._inner.put(key, value, ttl_s=self._ttl_s)
        return value

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._put.add(key)
        self._inner.put(key, value, ttl_s=self._ttl_s if self._bites(key) else ttl_s)

    def delete(self, key: Key) -> None:
        self._put.discard(key)
        self._inner.delete(key)

    def fresh(self) -> Expiring:
        return Expiring(self._inner.fresh(), self._ttl_s, self._bites, sliding=self._sliding)


@dataclass(frozen=True, slots=True)
class TtlOnly:
    """Answers expire after ``ttl_s`` and for no other reason. With ``sliding``, each hit starts the time again.

    On a stack whose keys hold the corpus epoch this does no harm; together with a key that does not
    (``KeyPartDropped("answer", "epoch")``) it is all that there is against stale answers.

    References
    ----------
    prompt-cache #8 (a TTL and nothing else), redis-vl-python #603 (refreshed on a hit: what is asked most never
    expires), BetterDB monitor #147 (a TTL that was read at start and needs a deployment to change).
    """

    ttl_s: float
    sliding: bool = False
    needs: frozenset[str] = frozenset({"layers.answer"})

    @property
    def name(self) -> str:
        return f"{'sliding' if self.sliding else 'absolute'}-ttl-{self.ttl_s:g}-s"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def bites(key: Key) -> bool:
            return ctx.affects(self.name, key.get("text"))

        return wrapping.cache(stack, "answer", lambda inner: Expiring(inner, self.ttl_s, bites, sliding=self.sliding))


@dataclass(frozen=True, slots=True)
class UnevenTiers:
    """The second tier of the answer cache expires after ``ttl_s``, the first one, which is asked first, does not.

    References
    ----------
    steemit/jussi PR #259: two tiers whose expiry is not refreshed together, and a value that is stuck in one.
    """

    ttl_s: float
    name: str = "uneven-tiers"
    needs: frozenset[str] = frozenset({"tiers"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def bites(key: Key) -> bool:
            return ctx.affects(self.name, key.get("text"))

        with wrapping.tier(stack, "l2", lambda inner: Expiring(inner, self.ttl_s, bites)):
            yield


@dataclass(frozen=True, slots=True)
class WeakFallback:
    """While the cache server is away, answers come from a dict in the process that knows no expiry and no epoch.

    The dict is filled all along and used from ``from_s`` to ``to_s``.

    References
    ----------
    PDF-Assistant-RAG #782: the fallback has no TTL, so a degraded service is a stale one.
    """

    from_s: float = 120.0
    to_s: float = 360.0
    name: str = "weak-fallback"
    needs: frozenset[str] = frozenset({"layers.answer"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.cache(stack, "answer", lambda inner: _Fallback(inner, MemoryCache(), ctx, self))


class _Fallback:
    def __init__(self, inner: Cache, local: Cache, ctx: Context, fault: WeakFallback) -> None:
        self._inner = inner
        self._local = local
        self._ctx = ctx
        self._fault = fault

    def _bites(self, key: Key) -> bool:
        return self._ctx.affects(self._fault.name, key.get("text"))

    def _away(self) -> bool:
        return self._fault.from_s <= self._ctx.now() < self._fault.to_s

    def get(self, key: Key) -> Any | None:
        if self._bites(key) and self._away():
            return self._local.get(key.without("epoch"))
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        bites = self._bites(key)
        if bites:
            self._local.put(key.without("epoch"), value)
        if not (bites and self._away()):
            self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._local.delete(key.without("epoch"))
        self._inner.delete(key)

    def fresh(self) -> _Fallback:
        return _Fallback(self._inner.fresh(), self._local.fresh(), self._ctx, self._fault)
