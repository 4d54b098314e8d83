"""Fixes for a prefix cache of KV blocks: names that say everything, entries that are checked, blocks that stay put."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.caches import many
from testbed.core import digest
from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.models.runner.chain import Identity, KeyScheme, TypedKeys
from testbed.stacks import wrapping

NEEDS = frozenset({"prefix"})
_TYPED, _LENGTH = TypedKeys(), 32


class Tagged:
    """Every name begins with the typed, tagged, length-prefixed chain; what was the name before follows."""

    def __init__(self, inner: KeyScheme) -> None:
        self._inner = inner

    def root(self, identity: Identity) -> bytes:
        return _TYPED.root(identity) + self._inner.root(identity)

    def child(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        return _TYPED.child(parent[:_LENGTH], tokens) + self._inner.child(parent[_LENGTH:], tokens)


@dataclass(frozen=True, slots=True)
class TypedPrefixKey:
    """Model, adapter fingerprint, salt and layout become typed parts of every block's name, in both tiers, uncut.

    Costs nothing but the hits that were wrong to give.
    """

    name: str = "typed-prefix-key"
    needs: frozenset[str] = NEEDS

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        prefix = wrapping.part(stack, "prefix")
        with wrapping.attribute(prefix, "keys", Tagged), wrapping.attribute(prefix, "outer_keys", Tagged):
            yield


@dataclass(frozen=True, slots=True)
class PinBlocks:
    """The blocks of a prompt stay in their slots until all of it has been read. Costs room while a prompt is read."""

    name: str = "pin-blocks"
    needs: frozenset[str] = NEEDS

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.attribute(wrapping.part(stack, "prefix"), "pins", lambda pins: True)


@dataclass(frozen=True, slots=True)
class VerifyBlocks:
    """An entry remembers its full key and a digest of its rows; a hit on which either differs is refused and dropped.

    Costs a digest of the rows per hit, and misses: two texts that share a name keep overwriting each other.
    """

    name: str = "verify-blocks"
    needs: frozenset[str] = NEEDS

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        wrapping.part(stack, "prefix")
        return wrapping.cache(stack, "prefix", lambda inner: _Verified(inner, ctx))


class _Verified:
    def __init__(self, inner: Cache, ctx: Context) -> None:
        self._inner, self._ctx = inner, ctx

    def get(self, key: Key) -> Any | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Sequence[Key]) -> list[Any | None]:
        found = many.get_many(self._inner, keys)
        return [self._checked(key, value) for key, value in zip(keys, found, strict=True)]

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self.put_many([(key, value)])

    def put_many(self, items: Sequence[tuple[Key, Any]]) -> None:
        many.put_many(self._inner, [(key, {**value, "mark": self._mark(key, value)}) for key, value in items])

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> _Verified:
        return _Verified(self._inner.fresh(), self._ctx)

    def _checked(self, key: Key, value: Any | None) -> Any | None:
        if value is None:
            return None
        plain = {name: part for name, part in value.items() if name != "mark"}
        if value.get("mark") == self._mark(key, plain):
            return plain
        self._ctx.reject("prefix", key, "made from something else, or not what was put")
        self._inner.delete(key)
        return None

    @staticmethod
    def _mark(key: Key, value: Any) -> str:
        return f"{key.digest()}:{digest.of_bytes(value['rows'].tobytes())}"
