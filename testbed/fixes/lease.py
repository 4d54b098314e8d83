"""Fixes for fills that arrive late or are merged late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.fixes.guard import Guarded
from testbed.fixes.invalidate import sources_of
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """Each fill carries a token; a change of a document that it was read from takes the token back.

    An entry with a token that was taken back is refused whenever it arrives, so it does not matter whether the delete
    or the fill was first. Costs an index from document to tokens, and a look at a set per hit.

    References
    ----------
    Nishtala et al., "Scaling Memcache at Facebook", NSDI 2013 (leases).
    """

    name: str = "lease-token"
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        tokens, taken_back = count(1), set[int]()
        by_doc: dict[str, list[int]] = {}

        def lease(key: Key, value: Any) -> int:
            token = next(tokens)
            for doc_id, *_ in sources_of(value):
                by_doc.setdefault(doc_id, []).append(token)
            return token

        def fits(mark: Any, key: Key) -> str:
            return "the lease was taken back" if mark in taken_back else ""

        with wrapping.cache(stack, "answer", lambda inner: Guarded(inner, "answer", ctx, lease, fits)):
            unsubscribe = stack.source.subscribe(lambda doc_id: taken_back.update(by_doc.pop(doc_id, ())))
            try:
                yield
            finally:
                unsubscribe()


@dataclass(frozen=True, slots=True)
class WriteThrough:
    """A second level that merges in batches is told to merge after every put.

    Costs the batching: each put pays for its own merge.
    """

    name: str = "write-through"
    needs: frozenset[str] = frozenset({"tiers"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with wrapping.tier(stack, "l2", _Through):
            yield


class _Through:
    def __init__(self, inner: Cache) -> None:
        self._inner = inner
        self._flush: Callable[[], None] = getattr(inner, "flush", lambda: None)

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)
        self._flush()

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> _Through:
        return _Through(self._inner.fresh())
