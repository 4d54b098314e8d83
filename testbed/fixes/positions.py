"""Fixes for documents that are known by their place in an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context, Hit, Index, Row, RowInfo, Vectors
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class StableIds:
    """Vectors are addressed by the document's own id in the store, not by a position and a map beside it.

    The index is replaced by an empty one of the stack's own make. Costs an id beside each vector.
    """

    name: str = "stable-ids"
    needs: frozenset[str] = frozenset({"index", "blank_index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda _: wrapping.part(stack, "blank_index")())


@dataclass(frozen=True, slots=True)
class FullRemap:
    """After a delete or an update, index and map are written anew from all vectors before they are searched again.

    Costs a second copy of every vector and one write of the whole index per group of changes.
    """

    name: str = "full-remap"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, Remapped)


class Remapped:
    def __init__(self, inner: Index) -> None:
        self._inner = inner
        self._rows: dict[str, Row] = {}
        self._is_dirty = False

    def upsert(self, rows: Sequence[Row]) -> None:
        self._is_dirty |= any(row.doc_id in self._rows for row in rows)
        self._rows.update((row.doc_id, row) for row in rows)
        self._inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self._is_dirty = True
        for doc_id in ids:
            self._rows.pop(doc_id, None)
        self._inner.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        self._remap()
        return self._inner.search(vector, tenant=tenant, k=k, made_by=made_by)

    def rows(self) -> Mapping[str, RowInfo]:
        self._remap()
        return self._inner.rows()

    def _remap(self) -> None:
        if self._is_dirty:
            self._inner = self._inner.fresh()
            self._inner.upsert([row for _, row in sorted(self._rows.items())])
            self._is_dirty = False

    def fresh(self) -> Remapped:
        return Remapped(self._inner.fresh())
