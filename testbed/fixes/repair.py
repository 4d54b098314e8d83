"""Fixes that hold a stored text against the record."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping
from testbed.stacks.pipeline import passage_value


@dataclass(frozen=True, slots=True)
class ReadRepair:
    """A text whose version is not the record's is refused, read anew from there, and stored.

    Costs one look at the record per text that is read.
    """

    name: str = "read-repair"
    needs: frozenset[str] = frozenset({"layers.text", "source"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.cache(stack, "text", lambda inner: _Repaired(inner, stack, ctx))


class _Repaired:
    def __init__(self, inner: Cache, stack: Any, ctx: Context) -> None:
        self._inner = inner
        self._stack = stack
        self._ctx = ctx

    def get(self, key: Key) -> Any | None:
        value = self._inner.get(key)
        doc = self._stack.source.find(key.get("doc"))
        if value is None or (doc is not None and doc.version == value["version"]):
            return value
        self._ctx.reject("text", key, f"v{value['version']} is superseded")
        self._inner.delete(key)
        if doc is None:
            return None
        self._inner.put(key, passage_value(doc))
        return passage_value(doc)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> _Repaired:
        return _Repaired(self._inner.fresh(), self._stack, self._ctx)


@dataclass(frozen=True, slots=True)
class TextInvalidation:
    """A change of a document deletes its stored text before the new one arrives.

    Costs one delete per change.
    """

    name: str = "text-invalidation"
    needs: frozenset[str] = frozenset({"layers.text", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        texts: Cache = stack.layers["text"] if "text" in stack.layers else wrapping.part(stack, "layers.text")
        unsubscribe = wrapping.part(stack, "source").subscribe(lambda doc_id: texts.delete(Key.of(doc=doc_id)))
        try:
            yield
        finally:
            unsubscribe()
