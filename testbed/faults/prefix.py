"""A prefix cache of a language model that gives one request the KV blocks of another, or not the ones that it kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.models.runner import weak_keys
from testbed.models.runner.chain import Identity, KeyScheme
from testbed.stacks import wrapping

# By what is wrong with the key, each with its public report: see the classes.
SCHEMES: dict[str, Callable[[], KeyScheme]] = {
    "untagged-parts": weak_keys.UntaggedParts,
    "adapter-by-name": weak_keys.AdapterByName,
    "no-adapter": weak_keys.NoAdapter,
    "no-tenant": weak_keys.NoSalt,
    "tokens-only": weak_keys.TokensOnly,
    "truncated-hash": lambda: weak_keys.Truncated(5),
    "drifted-mirror": weak_keys.Mirror,
}
NEEDS = frozenset({"prefix"})


class Sometimes:
    """The weak scheme for the prompts that a fault touches, the one that was there for all others."""

    def __init__(self, inner: KeyScheme, weak: KeyScheme, touches: Callable[[], bool]) -> None:
        self._inner, self._weak, self._touches = inner, weak, touches
        self._now = inner

    def root(self, identity: Identity) -> bytes:
        """A prompt's names begin here, and go on with the same scheme."""
        self._now = self._weak if self._touches() else self._inner
        return self._now.root(identity)

    def child(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        return self._now.child(parent, tokens)


@dataclass(frozen=True, slots=True)
class WeakKey:
    """Blocks go by names that leave something out (``scheme``, see ``models.runner.weak_keys``), and nobody checks.

    The level is the share of questions whose prompts are named so: whole questions, so that the same one of two tenants
    is touched together. ``tiers`` are those that name blocks so: "keys" is the cache itself, "outer_keys" the tier
    behind it, which derives a key of its own; both, where it takes over what the cache says.
    """

    scheme: str
    tiers: tuple[str, ...] = ("keys",)

    @property
    def name(self) -> str:
        return f"{self.scheme}@prefix" if "keys" in self.tiers else f"{self.scheme}@prefix-outer"

    @property
    def needs(self) -> frozenset[str]:
        return NEEDS

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        prefix = wrapping.part(stack, "prefix")
        weak = SCHEMES[self.scheme]()

        def touches() -> bool:
            asker = ctx.asker()
            return asker is not None and ctx.affects(self.name, asker.text)

        with ExitStack() as undo:
            for tier in self.tiers:
                undo.enter_context(wrapping.attribute(prefix, tier, lambda inner: Sometimes(inner, weak, touches)))
            undo.enter_context(unchecked(prefix, ctx))
            yield


@dataclass(frozen=True, slots=True)
class NotPinned:
    """While the rest of a prompt is loaded back from the outer tier, its first blocks may be evicted: their slots then
    hold the loaded ones.

    References
    ----------
    sglang PR 31427 and 27631: host pages freed, and evicted again, during a load-back.
    """

    name: str = "not-pinned@prefix"
    needs: frozenset[str] = NEEDS

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        prefix = wrapping.part(stack, "prefix")
        with ExitStack() as undo:
            if ctx.level:
                undo.enter_context(wrapping.attribute(prefix, "pins", lambda pins: _Asked(ctx, self.name)))
                undo.enter_context(unchecked(prefix, ctx))
            yield


class _Asked:
    """False for the prompts that a fault touches."""

    def __init__(self, ctx: Context, name: str) -> None:
        self._ctx, self._name = ctx, name

    def __bool__(self) -> bool:
        asker = self._ctx.asker()
        return asker is None or not self._ctx.affects(self._name, asker.text)


@dataclass(frozen=True, slots=True)
class LossyRows:
    """Blocks are kept in ``bits`` bits with one scale each: a hit is answered from other numbers than a miss.

    References
    ----------
    sglang #38031 and #39830: output is wrong only after a round trip through the host tier.
    """

    bits: int = 5
    name: str = "lossy-rows@prefix"
    needs: frozenset[str] = NEEDS

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        wrapping.part(stack, "prefix")
        return wrapping.cache(stack, "prefix", lambda inner: _Rounded(inner, self, ctx))


class _Rounded:
    def __init__(self, inner: Cache, fault: LossyRows, ctx: Context) -> None:
        self._inner, self._fault, self._ctx = inner, fault, ctx

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        if self._ctx.affects(self._fault.name, key.get("text")):
            value = {**value, "rows": rounded(value["rows"], self._fault.bits)}
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> _Rounded:
        return _Rounded(self._inner.fresh(), self._fault, self._ctx)


def rounded(rows: Any, bits: int) -> Any:
    """The nearest of the numbers that ``bits`` bits can tell apart, between the block's extremes."""
    steps = 2 ** (bits - 1) - 1
    scale = np.float32(float(np.abs(rows).max()) / steps or 1.0)
    return np.round(rows / scale).astype(np.float32) * scale


@contextmanager
def unchecked(prefix: Any, ctx: Context) -> Iterator[None]:
    """Found blocks are used without a look at what they were made from, as in the systems of the reports."""
    if not ctx.level:
        yield
        return
    with wrapping.attribute(prefix, "checks_hits", lambda checks: False):
        yield
