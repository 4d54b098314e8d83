"""Put a wrapper around a part of a stack for as long as a with-block lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from testbed.core.errors import Unsupported
from testbed.core.ports import Cache, Hit, Index, Row, RowInfo, Vectors


@contextmanager
def cache(stack: Any, layer: str, wrap: Callable[[Cache], Cache]) -> Iterator[None]:
    """Wrap one cache layer; the inner cache comes back at the end."""
    if layer not in stack.layers:
        raise Unsupported(f"the stack has no layer {layer!r} (it has: {', '.join(stack.layers) or 'none'})")
    inner = stack.layers[layer]
    stack.layers[layer] = wrap(inner)
    try:
        yield
    finally:
        stack.layers[layer] = inner


def part(stack: Any, name: str) -> Any:
    """An attribute of the stack; Unsupported when it has none of that name."""
    if not hasattr(stack, name):
        raise Unsupported(f"the stack has no {name!r}")
    return getattr(stack, name)


@contextmanager
def attribute(stack: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute by a wrapper around it."""
    inner = part(stack, name)
    setattr(stack, name, wrap(inner))
    try:
        yield
    finally:
        setattr(stack, name, inner)


def index(stack: Any, wrap: Callable[[Index], Index]) -> AbstractContextManager[None]:
    """Wrap the index."""
    return attribute(stack, "index", wrap)


@contextmanager
def tier(stack: Any, name: str, wrap: Callable[[Cache], Cache]) -> Iterator[None]:
    """Wrap one tier of the answer cache."""
    tiers = part(stack, "tiers")
    inner = tiers[name]
    tiers[name] = wrap(inner)
    try:
        yield
    finally:
        tiers[name] = inner


class ForwardedIndex:
    """An index that is what it wraps. A wrapper says only what it changes, and what a fresh one of it is.

    Inherited from, against the habit of this code: an index has five methods, and most wrappers change one.
    """

    def __init__(self, inner: Index) -> None:
        self._inner = inner

    def upsert(self, rows: Sequence[Row]) -> None:
        self._inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self._inner.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        return self._inner.search(vector, tenant=tenant, k=k, made_by=made_by)

    def rows(self) -> Mapping[str, RowInfo]:
        return self._inner.rows()
