"""Fixes that put into the key what was missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.caches.keys import robust
from testbed.caches.rekeyed import Rekeyed
from testbed.core import digest
from testbed.core.ports import Context
from testbed.core.types import Key
from testbed.stacks import wrapping


@contextmanager
def rekeyed(stack: Any, layers: tuple[str, ...], rekey: Callable[[Key], Key]) -> Iterator[None]:
    """Send every call to these cache layers through ``rekey``."""
    with ExitStack() as undo:
        for layer in layers:
            undo.enter_context(wrapping.cache(stack, layer, lambda inner: Rekeyed(inner, rekey)))
        yield


@dataclass(frozen=True, slots=True)
class TypedTenantKey:
    """Every cache key gets the asker's tenant as a part of its own type, taken from the authenticated request.

    Costs nothing but the hits that were wrong to give.
    """

    name: str = "typed-tenant-key"
    layers: tuple[str, ...] = ("answer", "retrieval", "embedding")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(f"layers.{layer}" for layer in self.layers)

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def rekey(key: Key) -> Key:
            asker = ctx.asker()
            return key if asker is None else key.replace(scope=f"tenant:{asker.tenant}")

        with rekeyed(stack, self.layers, rekey):
            yield


@dataclass(frozen=True, slots=True)
class VersionedKey:
    """Every cache key gets the fingerprint of the encoder in force: weights, tokenizer and settings, not its name.

    Costs a cold cache after each deployment.
    """

    name: str = "versioned-key"
    layers: tuple[str, ...] = ("answer", "retrieval", "embedding")
    needs: frozenset[str] = frozenset({"encoder"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with rekeyed(stack, self.layers, lambda key: key.replace(encoder=stack.encoder.fingerprint)):
            yield


@dataclass(frozen=True, slots=True)
class SchemaHashKey:
    """The answer key gets a digest of the conventions (units, currencies, enums, policies) that the tenant is under.

    Costs every cached answer of a tenant at each change of any of its conventions, related or not.
    """

    name: str = "schema-hash-key"
    layers: tuple[str, ...] = ("answer",)
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        known: dict[tuple[str, int], str] = {}

        def schema(tenant: str) -> str:
            at = (tenant, stack.source.epoch(tenant))
            if at not in known:
                docs = stack.source.docs(tenant=tenant, kind="convention")
                known[at] = digest.of_parts((d.id, d.text) for d in docs)
            return known[at]

        def rekey(key: Key) -> Key:
            asker = ctx.asker()
            return key if asker is None else key.replace(schema=schema(asker.tenant))

        with rekeyed(stack, self.layers, rekey):
            yield


@dataclass(frozen=True, slots=True)
class EpochKey:
    """The answer key gets the state of the asker's corpus, which moves with every change of any of its documents.

    Costs every cached answer of a tenant at each change, related or not.
    """

    name: str = "epoch-key"
    layers: tuple[str, ...] = ("answer", "retrieval")
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def rekey(key: Key) -> Key:
            asker = ctx.asker()
            return key if asker is None else key.replace(state=str(stack.source.epoch(asker.tenant)))

        with rekeyed(stack, self.layers, rekey):
            yield


@dataclass(frozen=True, slots=True)
class RobustKey:
    """Every part of a key but its text goes into one digest, with who asks: named, length-prefixed, of 256 bits.

    Who hands over such a finished key (``sealed``) has taken the building of keys away from what lies below. The text
    stays beside it, for a level that compares texts. Costs one BLAKE3 of some hundred bytes per look-up.
    """

    name: str = "robust-key"
    layers: tuple[str, ...] = ("answer", "retrieval", "embedding")

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(f"layers.{layer}" for layer in self.layers)

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def rekey(key: Key) -> Key:
            asker = ctx.asker()
            parts = key.without("text") if asker is None else key.without("text").replace(scope=asker.tenant)
            return Key.of(text=key.get("text"), sealed=robust(parts))

        with rekeyed(stack, self.layers, rekey):
            yield


@dataclass(frozen=True, slots=True)
class PromptKey:
    """The answer key gets what the reader calls itself: its prompt and its settings.

    Costs the hits between prompts, which were wrong to give.
    """

    name: str = "prompt-key"
    layers: tuple[str, ...] = ("answer",)
    needs: frozenset[str] = frozenset({"layers.answer", "reader"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with rekeyed(stack, self.layers, lambda key: key.replace(reader=stack.reader.name)):
            yield
