"""Fixes that look at an entry before they serve it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping

_OTHER = "put under another key"


class Guarded:
    """A cache whose entries carry a mark; an entry whose mark is not the one expected now is refused and dropped.

    ``mark(key, value)`` is computed at the put and stored beside the value; ``fits(mark, key)`` decides at the get.
    """

    def __init__(
        self,
        inner: Cache,
        layer: str,
        ctx: Context,
        mark: Callable[[Key, Any], Any],
        fits: Callable[[Any, Key], str],
    ) -> None:
        self._inner = inner
        self._layer = layer
        self._ctx = ctx
        self._mark = mark
        self._fits = fits

    def get(self, key: Key) -> Any | None:
        entry = self._inner.get(key)
        if entry is None:
            return None
        why = self._fits(entry["mark"], key)
        if not why:
            return entry["value"]
        self._ctx.reject(self._layer, key, why)
        self._inner.delete(key)
        return None

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, {"mark": self._mark(key, value), "value": value}, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> Guarded:
        return Guarded(self._inner.fresh(), self._layer, self._ctx, self._mark, self._fits)


@dataclass(frozen=True, slots=True)
class VerifyOnRead:
    """Entries remember the tenant they were made for; a hit for another tenant is refused, whatever the key said.

    Costs a comparison per hit, and misses: two tenants that share a slot keep overwriting each other.
    """

    name: str = "verify-on-read"
    layers: tuple[str, ...] = ("answer", "retrieval", "embedding")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(f"layers.{layer}" for layer in self.layers)

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def owner(key: Key, value: Any = None) -> str:
            asker = ctx.asker()
            return key.get("tenant") if asker is None else asker.tenant

        def fits(mark: Any, key: Key) -> str:
            return "" if mark == owner(key) else f"made for tenant {mark!r}"

        def guard(layer: str) -> Callable[[Cache], Cache]:
            return lambda inner: Guarded(inner, layer, ctx, owner, fits)

        with ExitStack() as undo:
            for layer in self.layers:
                undo.enter_context(wrapping.cache(stack, layer, guard(layer)))
            yield


@dataclass(frozen=True, slots=True)
class RevisionCheck:
    """Answers remember which revision of which document they were read from; a hit on a superseded one is refused.

    Costs one look at the record per document of each hit.
    """

    name: str = "revision-check"
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def read_from(key: Key, value: Any) -> Any:
            return [[doc_id, version] for doc_id, version, _ in value["sources"]]

        def fits(mark: Any, key: Key) -> str:
            for doc_id, version in mark:
                doc = stack.source.find(doc_id)
                if doc is None or doc.version != version:
                    return f"{doc_id} v{version} is superseded"
            return ""

        with wrapping.cache(stack, "answer", lambda inner: Guarded(inner, "answer", ctx, read_from, fits)):
            yield


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """Entries carry the whole key that they were put under; a hit under another key is refused, whatever its hash.

    Costs the key beside each value, and misses: two keys that share a slot keep overwriting each other.
    """

    name: str = "key-check"
    layers: tuple[str, ...] = ("answer", "retrieval", "embedding")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(f"layers.{layer}" for layer in self.layers)

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def guard(layer: str) -> Callable[[Cache], Cache]:
            def whole(key: Key, value: Any = None) -> str:
                # The answer cache may match a near text: there it is the rest of the key that must be the same.
                return (key.without("text") if layer == "answer" else key).digest()

            return lambda inner: Guarded(inner, layer, ctx, whole, lambda m, k: "" if m == whole(k) else _OTHER)

        with ExitStack() as undo:
            for layer in self.layers:
                undo.enter_context(wrapping.cache(stack, layer, guard(layer)))
            yield
