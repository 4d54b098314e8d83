"""Fixes that hold what is stored against what should be there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.core import digest
from testbed.core.ports import Cache, Context, Hit, Index, Row, RowInfo, Vectors
from testbed.core.types import Key
from testbed.stacks import wrapping
from testbed.stacks.pipeline import passage_value, rows_of
from testbed.stacks.source import Source


@dataclass(frozen=True, slots=True)
class ReconcileSweep:
    """After a change, and every ``period_s`` logical seconds, what the index holds is compared with the record.

    Compared are ids and texts, before the next search. What differs is written again; where that does not help, the
    index is built anew. Costs one listing of the index per comparison, and the rebuild when it comes to that.
    """

    period_s: float = 5.0
    name: str = "reconcile-sweep"
    needs: frozenset[str] = frozenset({"index", "encoder", "source"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        wrapping.part(stack, "source")
        return wrapping.index(stack, lambda inner: Reconciled(inner, stack, ctx, self.period_s))


class Reconciled:
    """Keeps no vectors: what it writes again is embedded again."""

    def __init__(self, inner: Index, stack: Any, ctx: Context, period_s: float) -> None:
        self._inner = inner
        self._stack = stack
        self._ctx = ctx
        self._period_s = period_s
        self._is_checked = False
        self._checked_at = 0.0

    def upsert(self, rows: Sequence[Row]) -> None:
        self._is_checked = False
        self._inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self._is_checked = False
        self._inner.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        self._settle()
        return self._inner.search(vector, tenant=tenant, k=k, made_by=made_by)

    def rows(self) -> Mapping[str, RowInfo]:
        self._settle()
        return self._inner.rows()

    def _settle(self) -> None:
        if self._is_checked and self._ctx.now() < self._checked_at + self._period_s:
            return
        self._is_checked, self._checked_at = True, self._ctx.now()
        extra, missing = self._differences()
        if not extra and not missing:
            return
        self._inner.delete(extra)
        self._write(missing)
        if any(self._differences()):
            self._inner = self._inner.fresh()
            self._write([d.id for d in self._stack.source.docs()])

    def _differences(self) -> tuple[list[str], list[str]]:
        """Ids that should not be there, and ids whose vector is not there or not of the current text."""
        held = self._inner.rows()
        live = {d.id: digest.of_text(d.text) for d in self._stack.source.docs()}
        missing = [i for i, text in live.items() if i not in held or held[i].text_digest != text]
        return [i for i in held if i not in live], missing

    def _write(self, ids: Sequence[str]) -> None:
        docs = [d for i in ids if (d := self._stack.source.find(i)) is not None]
        if docs:
            vectors = self._stack.encoder.encode([d.text for d in docs], "document")
            self._inner.upsert(rows_of(docs, vectors, self._stack.encoder))

    def fresh(self) -> Reconciled:
        return Reconciled(self._inner.fresh(), self._stack, self._ctx, self._period_s)


@dataclass(frozen=True, slots=True)
class TombstonesOnRead:
    """Ids that were deleted are remembered, and passed over by every search and every reading of a text.

    Costs an id per deleted document, and candidates beyond ``k`` while what they stand for is still in the index.
    """

    name: str = "tombstones-on-read"
    needs: frozenset[str] = frozenset({"index", "layers.text"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        dead: dict[str, None] = {}
        with (
            wrapping.index(stack, lambda inner: Buried(inner, dead)),
            wrapping.cache(stack, "text", lambda inner: BuriedTexts(inner, dead)),
        ):
            yield


class Buried:
    def __init__(self, inner: Index, dead: dict[str, None]) -> None:
        self._inner = inner
        self._dead = dead

    def upsert(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._dead.pop(row.doc_id, None)
        self._inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self._dead.update(dict.fromkeys(ids))
        self._inner.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        hits = self._inner.search(vector, tenant=tenant, k=k + len(self._dead), made_by=made_by)
        return [h for h in hits if h.doc_id not in self._dead][:k]

    def rows(self) -> Mapping[str, RowInfo]:
        return {doc_id: row for doc_id, row in self._inner.rows().items() if doc_id not in self._dead}

    def fresh(self) -> Buried:
        return Buried(self._inner.fresh(), {})


class BuriedTexts:
    def __init__(self, inner: Cache, dead: dict[str, None]) -> None:
        self._inner = inner
        self._dead = dead

    def get(self, key: Key) -> Any | None:
        return None if key.get("doc") in self._dead else self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._dead.pop(key.get("doc"), None)
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._dead[key.get("doc")] = None
        self._inner.delete(key)

    def fresh(self) -> BuriedTexts:
        return BuriedTexts(self._inner.fresh(), {})


@dataclass(frozen=True, slots=True)
class WriteCheck:
    """After a write, the index is asked which of the rows it holds, and those that it does not are written again.

    Costs one listing of the index per write. What is lost later goes unseen.
    """

    name: str = "write-check"
    attempts: int = 3
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, lambda inner: Checked(inner, self.attempts))


class Checked(wrapping.ForwardedIndex):
    def __init__(self, inner: Index, attempts: int) -> None:
        self._inner = inner
        self._attempts = attempts

    def upsert(self, rows: Sequence[Row]) -> None:
        waiting = list(rows)
        for _ in range(self._attempts):
            self._inner.upsert(waiting)
            held = self._inner.rows()
            waiting = [r for r in waiting if r.doc_id not in held or held[r.doc_id].text_digest != r.text_digest]
            if not waiting:
                return

    def fresh(self) -> Checked:
        return Checked(self._inner.fresh(), self._attempts)


@dataclass(frozen=True, slots=True)
class ReadRepair:
    """A text that is not the one in the record is replaced by it as it is read, and written back.

    Costs one look at the record per text that is read.
    """

    name: str = "read-repair"
    needs: frozenset[str] = frozenset({"layers.text", "source"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        source = wrapping.part(stack, "source")
        return wrapping.cache(stack, "text", lambda inner: Repaired(inner, source))


class Repaired:
    def __init__(self, inner: Cache, source: Source) -> None:
        self._inner = inner
        self._source = source

    def get(self, key: Key) -> Any | None:
        held, doc = self._inner.get(key), self._source.find(key.get("doc"))
        if doc is None:
            return None
        right = passage_value(doc)
        if held != right:
            self._inner.put(key, right)
        return right

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> Repaired:
        return Repaired(self._inner.fresh(), self._source)


@dataclass(frozen=True, slots=True)
class BuildBeside:
    """Documents that are all there already are indexed again beside the old index, which is replaced when all are in.

    Costs a second index while one is built, and a listing of it. What fails leaves the old index in service.
    """

    name: str = "build-beside"
    needs: frozenset[str] = frozenset({"index"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        return wrapping.index(stack, Beside)


class Beside(wrapping.ForwardedIndex):
    def __init__(self, inner: Index) -> None:
        self._inner = inner

    def upsert(self, rows: Sequence[Row]) -> None:
        ids = {row.doc_id for row in rows}
        if len(rows) < 2 or ids != set(self._inner.rows()):
            self._inner.upsert(rows)
            return
        beside = self._inner.fresh()
        beside.upsert(rows)
        if set(beside.rows()) == ids:
            self._inner = beside

    def fresh(self) -> Beside:
        return Beside(self._inner.fresh())
