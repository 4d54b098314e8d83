"""Tenant isolation that is soft where it must be hard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.caches.rekeyed import Rekeyed
from testbed.core.ports import Context, Hit, Index, Vectors
from testbed.core.types import Key, Query
from testbed.stacks import wrapping
from testbed.stacks.context import RequestContext


@dataclass(frozen=True, slots=True)
class TenantInText:
    """The tenant becomes a prefix of the cached text instead of a part of the key.

    An exact cache still separates the tenants. A semantic one does not: the prefix moves the embedding too little, and
    the second gate looks at the question only.

    References
    ----------
    vllm-project/semantic-router #2134: a byte-identical answer to another user at similarity 0.9085 over 0.8.
    """

    name: str = "tenant-in-text"
    needs: frozenset[str] = frozenset({"layers.answer", "semantic"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def rekey(key: Key) -> Key:
            if not ctx.affects(self.name, key.get("text")):
                return key
            return key.without("tenant").replace(text=f"{key.get('tenant')}: {key.get('text')}")

        def bare(text: str) -> str:
            head, colon, tail = text.partition(": ")
            return tail if colon and " " not in head else text

        with (
            wrapping.cache(stack, "answer", lambda inner: Rekeyed(inner, rekey)),
            wrapping.attribute(
                wrapping.part(stack, "semantic"), "gate", lambda gate: lambda a, b: gate(bare(a), bare(b))
            ),
        ):
            yield


@dataclass(frozen=True, slots=True)
class PostFilter:
    """One index shared by all tenants, cut to ``k`` first and filtered by tenant afterwards.

    Nothing leaks, but the k nearest rows are mostly other tenants' near-copies, and the asker's own documents never
    make the cut. The level is the share of searches (by query vector's owner question) that go this way.

    References
    ----------
    LlamaIndex ``FaissVectorStore`` has no metadata filter; callers filter after the search.
    """

    name: str = "post-filter"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: PostFiltered(inner, ctx, self.name))


class PostFiltered(wrapping.ForwardedIndex):
    def __init__(self, inner: Index, ctx: Context, name: str) -> None:
        self._inner = inner
        self._ctx = ctx
        self._name = name

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        asker = self._ctx.asker()
        if asker is None or not self._ctx.affects(self._name, asker.text):
            return self._inner.search(vector, tenant=tenant, k=k, made_by=made_by)
        rows = self._inner.rows()
        hits = self._inner.search(vector, tenant=None, k=k, made_by=made_by)
        return [h for h in hits if tenant is None or rows[h.doc_id].tenant == tenant]

    def fresh(self) -> PostFiltered:
        return PostFiltered(self._inner.fresh(), self._ctx, self._name)


@dataclass(frozen=True, slots=True)
class SharedTraceContext:
    """The tenant is looked up by trace id, and trace ids are reused across tenants.

    Whoever opened the id first stays its owner, so a later tenant's requests are cached, and answered, as the owner's.

    References
    ----------
    As published: requests of several tenants share one span context, ids are reused across async tasks.
    """

    name: str = "shared-trace-context"
    needs: frozenset[str] = frozenset({"context"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.attribute(stack, "context", lambda inner: OwnedByTrace(inner, ctx, self.name))


class OwnedByTrace:
    def __init__(self, inner: RequestContext, ctx: Context, name: str) -> None:
        self._inner = inner
        self._ctx = ctx
        self._name = name
        self._owner: dict[str, str] = {}

    def tenant_of(self, query: Query) -> str:
        if not query.session or not self._ctx.affects(self._name, query.session):
            return self._inner.tenant_of(query)
        return self._owner.setdefault(query.session, self._inner.tenant_of(query))
