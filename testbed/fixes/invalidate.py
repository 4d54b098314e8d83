"""Fixes that remove entries when what they came from changes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping


def sources_of(value: Any) -> Any:
    """The provenance of a cached answer, whatever has been put around it on the way (a mark, a lease)."""
    while "sources" not in value:
        value = value["value"]
    return value["sources"]


class ByProvenance:
    """Remembers, per document, under which keys answers that were read from it are cached.

    One that is made of another (``fresh``) hears of the same changes: a partition of a cache goes stale like the whole.
    """

    def __init__(self, inner: Cache) -> None:
        self._inner = inner
        self._keys: dict[str, dict[Key, None]] = {}
        self._hearing = [weakref.ref(self)]  # in the order they were made; one that nobody uses any more is forgotten

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)
        for doc_id, *_ in sources_of(value):
            self._keys.setdefault(doc_id, {})[key] = None

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def invalidate(self, doc_id: str) -> None:
        """Drop every entry that was read from this document."""
        self._hearing[:] = [ref for ref in self._hearing if ref() is not None]
        for part in filter(None, [ref() for ref in self._hearing]):
            for key in part._keys.pop(doc_id, {}):
                part._inner.delete(key)

    def fresh(self) -> ByProvenance:
        made = ByProvenance(self._inner.fresh())
        made._hearing = self._hearing
        self._hearing.append(weakref.ref(made))
        return made


@dataclass(frozen=True, slots=True)
class EventInvalidation:
    """A change of a document deletes the cached answers that were read from it.

    Costs an index from document to keys (memory) and one delete per derived entry and change; hits stay cheap.
    """

    name: str = "event-invalidation"
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        wrapped: list[ByProvenance] = []

        def wrap(inner: Cache) -> Cache:
            wrapped.append(ByProvenance(inner))
            return wrapped[-1]

        with wrapping.cache(stack, "answer", wrap):
            unsubscribe = stack.source.subscribe(wrapped[0].invalidate)
            try:
                yield
            finally:
                unsubscribe()
