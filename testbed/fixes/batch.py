"""Fixes for vectors that go astray in batches."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context, Index, Row
from testbed.stacks import wrapping

_ITSELF = 0.999  # inner product of a unit vector with what was stored of it


@dataclass(frozen=True, slots=True)
class BatchOfOne:
    """Every document is written by a call of its own, so that there is nothing to mix up.

    Costs one round trip per document instead of one per batch.
    """

    name: str = "batch-of-one"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Verified(inner, every=0))


@dataclass(frozen=True, slots=True)
class SelfSearch:
    """After a write, documents are searched for with the vector that was sent; one that does not find itself, with a
    score of 1, is written again alone.

    Costs one search per document that is checked.

    Parameters
    ----------
    every : 1 checks each document, n each n-th: cheaper, and what lies between goes unseen
    """

    every: int = 1
    needs: frozenset[str] = frozenset({"index"})

    @property
    def name(self) -> str:
        return "self-search" if self.every == 1 else f"self-search-1-in-{self.every}"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Verified(inner, every=self.every))


class Verified(wrapping.ForwardedIndex):
    """``every`` 0 writes one by one and checks nothing."""

    def __init__(self, inner: Index, every: int) -> None:
        self._inner = inner
        self._every = every

    def upsert(self, rows: Sequence[Row]) -> None:
        if self._every == 0:
            for row in rows:
                self._inner.upsert([row])
            return
        self._inner.upsert(rows)
        for row in rows[:: self._every]:
            if not self._finds_itself(row):
                self._inner.upsert([row])

    def _finds_itself(self, row: Row) -> bool:
        hits = self._inner.search(row.vector, tenant=row.tenant, k=5, made_by=row.made_by)
        return any(h.doc_id == row.doc_id and h.score >= _ITSELF for h in hits)

    def fresh(self) -> Verified:
        return Verified(self._inner.fresh(), self._every)
