"""Documents that are known by their place in an index, and places that move."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from testbed.core.ports import Context, Hit, Index, Row, RowInfo, Vectors
from testbed.stacks import wrapping
from testbed.stores.positional import SideMap


@dataclass(frozen=True, slots=True)
class PositionalIds:
    """A flat Faiss index and a map from position to document that is not kept in step with it.

    The index of the stack is made equal to what the pair says, so that searches and the trace show it. The level is the
    share of mutations after the first load that go wrong.

    Parameters
    ----------
    breaks : ``delete``: the index closes the gap of a removed vector, the map does not, and every later position names
        another document; an update is a delete and an add. ``add``: an update adds the vector first, is refused because
        the id is there already, and is tried again after a proper delete: one vector without a place in the map, and
        each document that is added later is known by the vector of the one before it.

    References
    ----------
    delete: haystack #6228, mem0 #3246, langchain #2699, Langchain-Chatchat #645. add: langchain #9019.
    """

    breaks: Literal["delete", "add"] = "delete"
    needs: frozenset[str] = frozenset({"index"})

    @property
    def name(self) -> str:
        return f"positional-ids@{self.breaks}"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: PositionalIndex(inner, ctx, self))


class PositionalIndex:
    """One side map per tenant; ``inner`` is brought up to what they say before each search."""

    def __init__(self, inner: Index, ctx: Context, fault: PositionalIds) -> None:
        self._inner = inner
        self._ctx = ctx
        self._fault = fault
        self._maps: dict[str, SideMap] = {}
        self._rows: dict[str, Row] = {}
        self._shown: dict[str, Row] = {}
        self._n_changes = 0
        self._moved: set[str] = set()

    def upsert(self, rows: Sequence[Row]) -> None:
        if self._ctx.level == 0:
            self._inner.upsert(rows)
            return
        known = [r.doc_id for r in rows if r.doc_id in self._rows]
        by_tenant: dict[str, list[Row]] = {}
        for row in rows:
            by_tenant.setdefault(row.tenant, []).append(row)
        if self._fault.breaks == "add":
            for row in rows:
                if row.doc_id in known and self._goes_wrong():
                    self._map(row).add_unmapped(row)
        self._forget(known)
        self._rows.update((r.doc_id, r) for r in rows)
        for tenant, added in by_tenant.items():
            self._map(added[0]).add(added)
            self._moved.add(tenant)

    def delete(self, ids: Sequence[str]) -> None:
        if self._ctx.level == 0:
            self._inner.delete(ids)
            return
        held = [i for i in ids if i in self._rows]
        self._forget(held)
        for doc_id in held:
            del self._rows[doc_id]

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        self._show()
        return self._inner.search(vector, tenant=tenant, k=k, made_by=made_by)

    def rows(self) -> Mapping[str, RowInfo]:
        self._show()
        return self._inner.rows()

    def fresh(self) -> PositionalIndex:
        return PositionalIndex(self._inner.fresh(), self._ctx, self._fault)

    def _map(self, row: Row) -> SideMap:
        if row.tenant not in self._maps:
            self._maps[row.tenant] = SideMap(row.vector.size, counts_map=self._fault.breaks == "add")
        return self._maps[row.tenant]

    def _forget(self, ids: Sequence[str]) -> None:
        for doc_id in ids:
            row = self._rows[doc_id]
            self._map(row).forget(doc_id, compacts=self._fault.breaks == "add" or not self._goes_wrong())
            self._moved.add(row.tenant)

    def _goes_wrong(self) -> bool:
        self._n_changes += 1
        return self._ctx.affects(self._fault.name, f"change-{self._n_changes}")

    def _show(self) -> None:
        """Make the stack's index say what index and map say together."""
        for tenant in sorted(self._moved):
            found = self._maps[tenant].resolved()
            before = {i for i, row in self._shown.items() if row.tenant == tenant}
            gone = sorted(before - set(found))
            rows = [self._rows[i]._replace(vector=v) for i, v in sorted(found.items()) if i in self._rows]
            changed = [r for r in rows if not same(self._shown.get(r.doc_id), r)]
            if gone:
                self._inner.delete(gone)
            if changed:
                self._inner.upsert(changed)
            for doc_id in gone:
                del self._shown[doc_id]
            self._shown.update((r.doc_id, r) for r in changed)
        self._moved.clear()


def same(one: Row | None, other: Row) -> bool:
    return one is not None and one[:3] == other[:3] and bool(np.array_equal(one.vector, other.vector))
