"""Keys that leave out something their value depends on: the most common pollution of all."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.caches.rekeyed import Rekeyed
from testbed.core.ports import Context
from testbed.core.types import Key
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class KeyPartDropped:
    """A cache's key builder forgets one part (tenant, model, epoch); everything else works as before.

    The level is the share of texts whose keys lose the part: whole texts, so that the same question of two tenants is
    touched together. ``role`` restricts it to embedding keys of one role.

    References
    ----------
    langchain #14590 and #19328 (model), OmniRoute #3740 and GPTCache #550 (tenant), dify #1372 (no epoch).
    """

    layer: str
    part: str
    role: str = ""

    @property
    def name(self) -> str:
        return f"drop-{self.part}@{self.layer}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"layers.{self.layer}"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def rekey(key: Key) -> Key:
            if self.role and key.get("role") != self.role:
                return key
            return key.without(self.part) if ctx.affects(self.name, key.get("text")) else key

        return wrapping.cache(stack, self.layer, lambda inner: Rekeyed(inner, rekey))


@dataclass(frozen=True, slots=True)
class ShortHash:
    """A cache's key is a hash of its parts that is cut to a few bits: two keys now and then are one.

    The level is the share of texts whose keys are hashed in this way. ``role`` restricts it to embedding keys of one
    role. A cache of n entries holds about n^2 / 2^(bits + 1) pairs that collide.

    References
    ----------
    mastra-ai/mastra #17900 (32 bits), mick-gsk/drift #431 (SHA-256 cut to 16 digits).
    """

    layer: str
    bits: int = 10
    role: str = ""

    @property
    def name(self) -> str:
        return f"short-hash-{self.bits}@{self.layer}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({f"layers.{self.layer}"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def rekey(key: Key) -> Key:
            if (self.role and key.get("role") != self.role) or not ctx.affects(self.name, key.get("text")):
                return key
            return Key.of(slot=str(int(key.digest(), 16) % 2**self.bits))

        return wrapping.cache(stack, self.layer, lambda inner: Rekeyed(inner, rekey))
