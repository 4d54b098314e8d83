"""A name taken for what it names."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class PathAsIdentity:
    """The text of a document is cached by its path: a path that is known is not read again, whatever is in it now.

    The level is the share of documents that this touches.

    References
    ----------
    Qwen-Agent #414 (a file's URL is its cache id), qdrant-loader PR #209 (a document's id is its key).
    """

    name: str = "path-as-identity"
    needs: frozenset[str] = frozenset({"layers.text"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.cache(stack, "text", lambda inner: _FirstStays(inner, ctx, self.name))


class _FirstStays:
    def __init__(self, inner: Cache, ctx: Context, name: str) -> None:
        self._inner = inner
        self._ctx = ctx
        self._name = name
        self._known: set[Key] = set()

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        if key in self._known and self._ctx.affects(self._name, key.get("doc")):
            return
        self._known.add(key)
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._known.discard(key)
        self._inner.delete(key)

    def fresh(self) -> _FirstStays:
        return _FirstStays(self._inner.fresh(), self._ctx, self._name)
