"""Fixes that give every tenant a part of its own, so that there is nothing to mix up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from testbed.core.ports import Cache, Context, Hit, Index, Row, RowInfo, Vectors
from testbed.core.types import Key, Query
from testbed.stacks import wrapping
from testbed.stacks.context import RequestContext


class CachePerTenant:
    """One cache of the same make per asking tenant."""

    def __init__(self, inner: Cache, tenant: Callable[[], str | None]) -> None:
        self._inner = inner
        self._tenant = tenant
        self._parts: dict[str, Cache] = {}

    def _part(self, key: Key) -> Cache:
        asker = self._tenant()
        tenant = key.get("tenant") if asker is None else asker
        if tenant not in self._parts:
            self._parts[tenant] = self._inner.fresh()
        return self._parts[tenant]

    def get(self, key: Key) -> Any | None:
        return self._part(key).get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._part(key).put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._part(key).delete(key)

    def fresh(self) -> CachePerTenant:
        return CachePerTenant(self._inner, self._tenant)


class IndexPerTenant:
    """One index of the same make per tenant; a search sees its own only."""

    def __init__(self, inner: Index) -> None:
        self._inner = inner
        self._parts: dict[str, Index] = {}
        self._tenant_of: dict[str, str] = {}

    def upsert(self, rows: Sequence[Row]) -> None:
        by_tenant: dict[str, list[Row]] = {}
        for row in rows:
            before = self._tenant_of.get(row.doc_id)
            if before is not None and before != row.tenant:
                self.delete([row.doc_id])
            self._tenant_of[row.doc_id] = row.tenant
            by_tenant.setdefault(row.tenant, []).append(row)
        for tenant, mine in by_tenant.items():
            if tenant not in self._parts:
                self._parts[tenant] = self._inner.fresh()
            self._parts[tenant].upsert(mine)

    def delete(self, ids: Sequence[str]) -> None:
        for doc_id in ids:
            tenant = self._tenant_of.pop(doc_id, None)
            if tenant is not None:
                self._parts[tenant].delete([doc_id])

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        if tenant is not None:
            part = self._parts.get(tenant)
            return [] if part is None else part.search(vector, tenant=tenant, k=k, made_by=made_by)
        hits = [h for _, p in sorted(self._parts.items()) for h in p.search(vector, tenant=None, k=k, made_by=made_by)]
        return sorted(hits, key=lambda h: (-h.score, h.doc_id))[:k]

    def rows(self) -> Mapping[str, RowInfo]:
        return dict(sorted((i, r) for p in self._parts.values() for i, r in p.rows().items()))

    def fresh(self) -> IndexPerTenant:
        return IndexPerTenant(self._inner)


@dataclass(frozen=True, slots=True)
class HardPartition:
    """A cache and an index per tenant instead of a shared one with a filter.

    Costs memory per tenant (an index and a cache each), and nothing per request.
    """

    name: str = "hard-partition"
    layers: tuple[str, ...] = ("answer", "retrieval", "embedding")
    needs: frozenset[str] = frozenset({"index"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def asking() -> str | None:
            asker = ctx.asker()
            return None if asker is None else asker.tenant

        with ExitStack() as undo:
            for layer in self.layers:
                if layer in stack.layers:
                    undo.enter_context(wrapping.cache(stack, layer, lambda inner: CachePerTenant(inner, asking)))
            undo.enter_context(wrapping.index(stack, IndexPerTenant))
            yield


@dataclass(frozen=True, slots=True)
class TenantScopedContext:
    """The id under which a request's context is kept becomes ``tenant|trace``, so a reused trace id finds nothing.

    Costs nothing. The published fix of that trace mix-up.
    """

    name: str = "tenant-scoped-context"
    needs: frozenset[str] = frozenset({"context"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with wrapping.attribute(stack, "context", ScopedContext):
            yield


class ScopedContext:
    def __init__(self, inner: RequestContext) -> None:
        self._inner = inner

    def tenant_of(self, query: Query) -> str:
        scoped = f"{len(query.tenant)}:{query.tenant}|{query.session}"
        return self._inner.tenant_of(replace(query, session=scoped))
