"""Vectors that are not where the records say that they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from testbed.core.ports import Context, Index, Row, RowInfo
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class RecordsBelieved:
    """The vector store loses documents; the indexer asks its own records, which have them, and skips them ever after.

    ``share`` of the documents are lost at ``at_s`` logical seconds at level 1; the level scales it.

    References
    ----------
    langchain-ai/langchain #39937: 1,178 sources in the records, 36 in the store, every run says "skipped".
    """

    share: float = 0.3
    at_s: float = 40.0
    name: str = "records-believed"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Recorded(inner, ctx, self))


class Recorded(wrapping.ForwardedIndex):
    def __init__(self, inner: Index, ctx: Context, fault: RecordsBelieved, *, loses: bool = True) -> None:
        super().__init__(inner)
        self._ctx = ctx
        self._fault = fault
        self._records: dict[str, tuple[str, str]] = {}
        if loses and ctx.level > 0:
            ctx.schedule(fault.at_s, self._lose)

    def upsert(self, rows: Sequence[Row]) -> None:
        if self._ctx.level > 0:
            rows = [row for row in rows if self._records.get(row.doc_id) != (row.made_by, row.text_digest)]
            self._records.update((row.doc_id, (row.made_by, row.text_digest)) for row in rows)
        self._inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        for doc_id in ids:
            self._records.pop(doc_id, None)
        self._inner.delete(ids)

    def _lose(self) -> None:
        held = self._inner.rows()
        self._inner.delete([i for i in held if self._ctx.affects(self._fault.name, i, share=self._fault.share)])

    def fresh(self) -> Recorded:
        return Recorded(self._inner.fresh(), self._ctx, self._fault, loses=False)


@dataclass(frozen=True, slots=True)
class FailedUpserts:
    """Some rows of a write are refused; the response says so, and nobody reads it. Tried again, they are taken.

    ``share`` of the rows at level 1; the level scales it.

    References
    ----------
    langchain-ai/langchain #40226 (``response.failed`` unread), openloomi #535 (rows committed, vectors not),
    weaviate #4276 (the queue of the index is lost).
    """

    share: float = 0.3
    name: str = "failed-upserts"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Refusing(inner, ctx, self, set()))


class Refusing(wrapping.ForwardedIndex):
    def __init__(self, inner: Index, ctx: Context, fault: FailedUpserts, tried: set[tuple[str, str, str]]) -> None:
        super().__init__(inner)
        self._ctx = ctx
        self._fault = fault
        self._tried = tried

    def upsert(self, rows: Sequence[Row]) -> None:
        self._inner.upsert([row for row in rows if not self._refuses(row)])

    def _refuses(self, row: Row) -> bool:
        attempt = (row.doc_id, row.made_by, row.text_digest)
        is_first = attempt not in self._tried
        self._tried.add(attempt)
        return is_first and self._ctx.affects(self._fault.name, ":".join(attempt), share=self._fault.share)

    def fresh(self) -> Refusing:
        return Refusing(self._inner.fresh(), self._ctx, self._fault, self._tried)


@dataclass(frozen=True, slots=True)
class VectorKept:
    """A document counts as embedded when it has a vector of the model in force; that its text changed is not looked at.

    The level is the share of documents.

    References
    ----------
    garrytan/gbrain #4246 (253 chunks stale, coverage 100 %), nshiab/simple-data-analysis #1244.
    """

    name: str = "vector-kept"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Keeping(inner, ctx, self.name))


class Keeping(wrapping.ForwardedIndex):
    def __init__(self, inner: Index, ctx: Context, name: str) -> None:
        super().__init__(inner)
        self._ctx = ctx
        self._name = name

    def upsert(self, rows: Sequence[Row]) -> None:
        held = self._inner.rows()
        self._inner.upsert([row for row in rows if not self._keeps(row, held.get(row.doc_id))])

    def _keeps(self, row: Row, held: RowInfo | None) -> bool:
        return held is not None and held.made_by == row.made_by and self._ctx.affects(self._name, row.doc_id)

    def fresh(self) -> Keeping:
        return Keeping(self._inner.fresh(), self._ctx, self._name)


@dataclass(frozen=True, slots=True)
class DeletedAfterAdd:
    """An update is a delete and an add in one batch, and the engine applies the adds of a batch first.

    The updated document has no vector any more. The level is the share of documents.

    References
    ----------
    chroma-core/chroma PR #2062, #2532: delete and add of one id in one batch, the vector is missing.
    """

    name: str = "deleted-after-add"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: AddsFirst(inner, ctx, self.name))


class AddsFirst(wrapping.ForwardedIndex):
    def __init__(self, inner: Index, ctx: Context, name: str) -> None:
        super().__init__(inner)
        self._ctx = ctx
        self._name = name

    def upsert(self, rows: Sequence[Row]) -> None:
        held = self._inner.rows()
        updated = [r.doc_id for r in rows if r.doc_id in held and self._ctx.affects(self._name, r.doc_id)]
        self._inner.upsert(rows)
        self._inner.delete(updated)

    def fresh(self) -> AddsFirst:
        return AddsFirst(self._inner.fresh(), self._ctx, self._name)


@dataclass(frozen=True, slots=True)
class RebuildFails:
    """Indexing again begins by deleting what is there; then the embedding service fails, which becomes a warning.

    ``share`` of the documents are not written again at level 1; the level scales it.

    References
    ----------
    open-webui #23787: old vectors deleted, the rebuild fails, the request returns 200 and the knowledge base is empty.
    """

    share: float = 0.6
    name: str = "rebuild-fails"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Rebuilding(inner, ctx, self, {}))


class Rebuilding(wrapping.ForwardedIndex):
    """``written`` counts the writes of each (document, text), whichever index they went to."""

    def __init__(self, inner: Index, ctx: Context, fault: RebuildFails, written: dict[tuple[str, str], int]) -> None:
        super().__init__(inner)
        self._ctx = ctx
        self._fault = fault
        self._written = written

    def upsert(self, rows: Sequence[Row]) -> None:
        failed = [row for row in rows if self._fails(row)]
        if failed:
            self._inner.delete([row.doc_id for row in rows])
        gone = {row.doc_id for row in failed}
        self._inner.upsert([row for row in rows if row.doc_id not in gone])

    def _fails(self, row: Row) -> bool:
        key = (row.doc_id, row.text_digest)
        times = self._written[key] = self._written.get(key, 0) + 1
        return times == 2 and self._ctx.affects(self._fault.name, row.doc_id, share=self._fault.share)

    def fresh(self) -> Rebuilding:
        return Rebuilding(self._inner.fresh(), self._ctx, self._fault, self._written)
