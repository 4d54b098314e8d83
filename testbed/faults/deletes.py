"""Deletes that delete nothing, and new versions that do not replace the old."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from testbed.core.ports import Cache, Context, Index, Row
from testbed.core.types import Key
from testbed.stacks import wrapping


@dataclass(frozen=True, slots=True)
class WrongSelector:
    """A document is deleted by a selector that matches nothing there, and nobody looks at how many rows were deleted.

    The level is the share of documents. ``store`` is which of the two stores is asked in this way.

    References
    ----------
    open-webui PR #25495 (a filter on a payload id that is not in the payload), langchainjs #7924 (ids not passed),
    chroma #4885 (``text``: no cascade, the text of a deleted document stays).
    """

    store: Literal["index", "text"] = "index"

    @property
    def name(self) -> str:
        return f"wrong-selector@{self.store}"

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"index" if self.store == "index" else "layers.text"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def selector(doc_id: str) -> str:
            return f"payload.id={doc_id}" if ctx.affects(self.name, doc_id) else doc_id

        if self.store == "text":
            return wrapping.cache(stack, "text", lambda inner: MisdirectedTexts(inner, selector))
        return wrapping.index(stack, lambda inner: Misdirected(inner, selector))


class Misdirected(wrapping.ForwardedIndex):
    """An index whose deletes go to what ``selector(id)`` names."""

    def __init__(self, inner: Index, selector: Any) -> None:
        self._inner = inner
        self._selector = selector

    def delete(self, ids: Sequence[str]) -> None:
        self._inner.delete([self._selector(doc_id) for doc_id in ids])

    def fresh(self) -> Misdirected:
        return Misdirected(self._inner.fresh(), self._selector)


class MisdirectedTexts:
    """A text layer whose deletes go to what ``selector(id)`` names."""

    def __init__(self, inner: Cache, selector: Any) -> None:
        self._inner = inner
        self._selector = selector

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key.replace(doc=self._selector(key.get("doc"))))

    def fresh(self) -> MisdirectedTexts:
        return MisdirectedTexts(self._inner.fresh(), self._selector)


@dataclass(frozen=True, slots=True)
class SharedHashSlot:
    """What is held is looked up by the hash of the text, one document a hash: of two of one text, one is forgotten.

    The forgotten one cannot be deleted any more. The level is the share of documents.

    References
    ----------
    run-llama/llama_index #23002: the map from hash to document id loses duplicates.
    """

    name: str = "shared-hash-slot"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: ByHash(inner, ctx, self.name))


class ByHash(Misdirected):
    def __init__(self, inner: Index, ctx: Context, name: str) -> None:
        self._hash_of: dict[str, str] = {}
        self._slots: dict[str, str] = {}
        self._ctx = ctx
        self._name = name
        super().__init__(inner, self._held)

    def upsert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._hash_of[row.doc_id] = row.text_digest
            self._slots[row.text_digest] = row.doc_id
        self._inner.upsert(rows)

    def _held(self, doc_id: str) -> str:
        owner = self._slots.get(self._hash_of.get(doc_id, ""), doc_id)
        return doc_id if owner == doc_id or not self._ctx.affects(self._name, doc_id) else f"not-in-slot:{doc_id}"

    def fresh(self) -> ByHash:
        return ByHash(self._inner.fresh(), self._ctx, self._name)


@dataclass(frozen=True, slots=True)
class AppendedVersion:
    """A new version of a document is added beside the old one, whose vector and text stay, under an id of their own.

    The level is the share of documents.

    References
    ----------
    codepath/pathreview #7, langchainjs #7924, llama_index #13239: re-ingestion appends, both versions are retrieved.
    """

    name: str = "appended-version"
    needs: frozenset[str] = frozenset({"index", "layers.text"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def affected(doc_id: str) -> bool:
            return ctx.affects(self.name, doc_id)

        with (
            wrapping.index(stack, lambda inner: AppendingIndex(inner, affected)),
            wrapping.cache(stack, "text", lambda inner: AppendingTexts(inner, affected)),
        ):
            yield


def old_id(doc_id: str, version: int) -> str:
    """Under which id a version that was not replaced stays."""
    return f"{doc_id}@{version}"


class AppendingIndex(Misdirected):
    def __init__(self, inner: Index, affected: Any) -> None:
        super().__init__(inner, lambda doc_id: doc_id)
        self._affected = affected
        self._rows: dict[str, Row] = {}

    def upsert(self, rows: Sequence[Row]) -> None:
        before = [(row, self._rows.get(row.doc_id)) for row in rows if self._affected(row.doc_id)]
        kept = [old for row, old in before if old is not None and old.text_digest != row.text_digest]
        self._rows.update((row.doc_id, row) for row in rows)
        self._inner.upsert(rows)
        if kept:
            self._inner.upsert([old._replace(doc_id=old_id(old.doc_id, old.version)) for old in kept])

    def fresh(self) -> AppendingIndex:
        return AppendingIndex(self._inner.fresh(), self._affected)


class AppendingTexts(MisdirectedTexts):
    def __init__(self, inner: Cache, affected: Any) -> None:
        super().__init__(inner, lambda doc_id: doc_id)
        self._affected = affected

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        doc_id = key.get("doc")
        old = self._inner.get(key) if self._affected(doc_id) else None
        self._inner.put(key, value, ttl_s=ttl_s)
        if old is not None and old["text"] != value["text"]:
            self._inner.put(key.replace(doc=old_id(doc_id, old["version"])), old, ttl_s=ttl_s)

    def fresh(self) -> AppendingTexts:
        return AppendingTexts(self._inner.fresh(), self._affected)


@dataclass(frozen=True, slots=True)
class EmptyMeansAll:
    """A document's chunks are looked up and deleted by their ids; where the look-up finds none, the empty list is all.

    The level is the share of deletes whose look-up finds nothing, out of ``share`` at level 1.

    References
    ----------
    infiniflow/ragflow #6607: ``chunk_ids=[]`` deletes all on one engine and none on another.
    """

    share: float = 0.1
    name: str = "empty-means-all"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Emptied(inner, ctx, self))


class Emptied(Misdirected):
    def __init__(self, inner: Index, ctx: Context, fault: EmptyMeansAll) -> None:
        super().__init__(inner, lambda doc_id: doc_id)
        self._ctx = ctx
        self._fault = fault

    def delete(self, ids: Sequence[str]) -> None:
        held = self._inner.rows()
        for doc_id in ids:
            if doc_id in held and self._ctx.affects(self._fault.name, doc_id, share=self._fault.share):
                tenant = held[doc_id].tenant
                self._inner.delete([i for i, row in held.items() if row.tenant == tenant])
        self._inner.delete(ids)

    def fresh(self) -> Emptied:
        return Emptied(self._inner.fresh(), self._ctx, self._fault)
