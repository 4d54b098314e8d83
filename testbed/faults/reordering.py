"""Operations in another order than they were begun in, in logical time: no threads, the same every time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Cache, Context
from testbed.core.types import Key
from testbed.stacks import wrapping


class Delayed:
    """A cache that what is put reaches only after a while; a delete in between does not call it back.

    ``flush`` brings what waits at once.
    """

    def __init__(self, inner: Cache, delay_s: float, ctx: Context, bites: Callable[[Key], bool]) -> None:
        self._inner = inner
        self._delay_s = delay_s
        self._ctx = ctx
        self._bites = bites
        self._waiting: dict[int, Callable[[], None]] = {}
        self._count = 0

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        if not self._bites(key):
            self._inner.put(key, value, ttl_s=ttl_s)
            return
        self._count += 1
        ticket = self._count
        self._waiting[ticket] = lambda: self._inner.put(key, value, ttl_s=ttl_s)
        self._ctx.schedule(self._ctx.now() + self._delay_s, lambda: self._arrive(ticket))

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def flush(self) -> None:
        for ticket in list(self._waiting):
            self._arrive(ticket)

    def fresh(self) -> Delayed:
        return Delayed(self._inner.fresh(), self._delay_s, self._ctx, self._bites)

    def _arrive(self, ticket: int) -> None:
        put = self._waiting.pop(ticket, None)
        if put is not None:
            put()


@dataclass(frozen=True, slots=True)
class SlowFill:
    """An answer takes ``delay_s`` to reach the cache; when its documents change meanwhile, it is put in after all.

    The invalidation finds nothing to delete, and a newer answer that is there by then is replaced. The level is the
    share of questions whose fill is slow.

    References
    ----------
    rust-self-learning-memory #964 (no single flight, a leader that is overtaken), replayed as a reordering of
    operations in logical time.
    """

    delay_s: float = 60.0
    name: str = "slow-fill"
    needs: frozenset[str] = frozenset({"layers.answer"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def bites(key: Key) -> bool:
            return ctx.affects(self.name, key.get("text"))

        return wrapping.cache(stack, "answer", lambda inner: Delayed(inner, self.delay_s, ctx, bites))
