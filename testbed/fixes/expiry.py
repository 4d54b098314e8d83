"""Fixes that limit how old an answer may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context
from testbed.core.types import Key
from testbed.fixes.guard import Guarded
from testbed.stacks import wrapping


@contextmanager
def _no_older_than(stack: Any, ctx: Context, limit_s: Callable[[], float]) -> Iterator[None]:
    """Answers remember when they were made; a hit on one that is ``limit_s()`` seconds old or more is refused."""

    def written(key: Key, value: Any) -> float:
        return ctx.now()

    def fits(mark: Any, key: Key) -> str:
        age_s = ctx.now() - float(mark)
        return "" if age_s < limit_s() else f"made {age_s:g} s ago"

    with wrapping.cache(stack, "answer", lambda inner: Guarded(inner, "answer", ctx, written, fits)):
        yield


@dataclass(frozen=True, slots=True)
class AbsoluteTtl:
    """An answer lives for ``ttl_s`` from when it was made, however often it is read, whichever tier holds it.

    Costs an answer made anew for each question and lifetime, changed or not; and stale ones for up to that long.
    """

    ttl_s: float = 60.0
    name: str = "absolute-ttl"
    needs: frozenset[str] = frozenset({"layers.answer"})

    def applied(self, stack: Any, ctx: Context) -> Any:
        return _no_older_than(stack, ctx, lambda: self.ttl_s)


@dataclass(frozen=True, slots=True)
class TtlOnChange:
    """The lifetime can be changed while the service runs, and is: to ``ttl_s`` from the first change of a document.

    Costs nothing before, and what an absolute TTL costs after that.
    """

    ttl_s: float = 60.0
    name: str = "ttl-on-change"
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        changed: list[str] = []
        with _no_older_than(stack, ctx, lambda: self.ttl_s if changed else float("inf")):
            # the first load is no change of what has been answered from
            unsubscribe = stack.source.subscribe(lambda doc_id: changed.append(doc_id) if ctx.now() > 0 else None)
            try:
                yield
            finally:
                unsubscribe()
