"""A stack whose vectors and texts are kept by one dual writer, as an indexing job in front of a service does it.

What the pipeline writes waits until the next read and then goes to the stores as one batch. A fault takes the place of
``deliver``: it may kill the process that writes, or cut its wire. What the stores hold afterwards is what the pipeline
searches and reads.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.core.errors import Unsupported
from testbed.core.ports import Cache, Context, Hit, Index, Row, RowInfo, Vectors
from testbed.core.types import Key
from testbed.stacks import wrapping
from testbed.stores.catalogue import build as new_store
from testbed.stores.dual import DualWriter, Item, Text, Wrong, item
from testbed.stores.dual_worker import design as design_of
from testbed.stores.text import TextStore, url_of

_ONE = "a dual writer keeps one index and one text store in step; a fix that makes its own would leave the writer out"


class DualStores:
    """The two stores of one arm and the writer in front of them.

    Parameters
    ----------
    inner : the stack's own index, made to hold what the writer's index holds, so that the trace shows it
    url, namespace : where the texts are; another process reaches them too
    folder : of the saved index; this arm's alone
    design : name of the writer (see ``stores.dual_worker.DESIGNS``)
    """

    def __init__(self, inner: Index, url: str, namespace: str, folder: Path, design: str) -> None:
        self.inner = inner
        self.url = url
        self.namespace = namespace
        self.folder = folder
        self.design = design
        self.deliver: Callable[[list[Item]], None] = self.write
        self.checks: list[tuple[str, tuple[Wrong, ...]]] = []
        self._rows: dict[str, Row] = {}
        self._texts: dict[str, Text] = {}
        self._seen: dict[tuple[str, str], Row] = {}  # rows by id and text digest
        self._store: TextStore | None = None
        self.writer = self.restart()

    # -- the writer's process -----------------------------------------------------------------------------------------

    def restart(self) -> DualWriter:
        """A writer that comes up on what the last one left: its recovery is over before anything is served."""
        if self._store is not None:
            self._store.close()
        self._store = TextStore.at(self.url, self.namespace)
        self.writer = design_of(self.design)(self._store, self.folder, lambda: new_store("faiss"))
        self.writer.recover()
        return self.writer

    def reach(self, url: str) -> None:
        """Go to the texts by another way from now on."""
        self.url = url
        self.restart()

    def redesign(self, design: str) -> None:
        """Another design of writer, before anything was written."""
        if self.writer.index.rows() or self._rows:
            raise Unsupported(f"the stores already hold documents of the {self.design} writer")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.design = design
        self.restart()

    def check(self, when: str) -> None:
        """Compare the stores, document by document, before anybody reads them again; ``describe`` tells."""
        self.checks.append((when, self.writer.wrong()))

    def describe(self) -> list[dict[str, str]]:
        """What every check found, and what is wrong now: part, actual, believed, agree."""
        self.flush()
        rows = []
        for when, wrong in (*self.checks, ("at the end", self.writer.wrong())):
            kinds = Counter(w.fault for w in wrong)
            found = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "0 wrong"
            witness = f" ({wrong[0].story()})" if wrong else ""
            rows.append(
                {"part": when, "actual": found + witness, "believed": "0 wrong", "agree": "no" if wrong else "yes"}
            )
        return rows

    def write(self, batch: list[Item]) -> None:
        """Deliver a batch that nothing disturbs."""
        self.writer.write(batch)

    def close(self) -> None:
        assert self._store is not None
        self._store.clear()
        self._store.close()

    # -- what the pipeline does ---------------------------------------------------------------------------------------

    def hold_rows(self, rows: Sequence[Row]) -> None:
        self._rows.update((r.doc_id, r) for r in rows)

    def hold_text(self, text: Text) -> None:
        self._texts[text.doc_id] = text

    def flush(self) -> None:
        """Bring what waits into the stores, in the order of arrival, and the stack's index up to what they hold.

        Half a new document goes on waiting for the other half.
        """
        whole = {doc_id: self._item(doc_id) for doc_id in {**self._rows, **self._texts}}
        batch = [b for b in whole.values() if b is not None]
        self._rows = {doc_id: row for doc_id, row in self._rows.items() if whole[doc_id] is None}
        self._texts = {doc_id: text for doc_id, text in self._texts.items() if whole[doc_id] is None}
        if not batch:
            return
        self._seen.update(((i.row.doc_id, i.row.text_digest), i.row) for i in batch)
        self.deliver(batch)
        self._show(batch)

    def _item(self, doc_id: str) -> Item | None:
        """Both halves of a document; a half that did not change comes from the stores."""
        row, text = self._rows.get(doc_id), self._texts.get(doc_id)
        if row is None:
            row = next((r for (i, _), r in reversed(self._seen.items()) if i == doc_id), None)
        if text is None:
            text = self.writer.text(doc_id)
        return None if row is None or text is None else item(row, text.text, text.refs)

    def _show(self, batch: Sequence[Item]) -> None:
        """Make the stack's index equal to the writer's."""
        held, shown = self.writer.index.rows(), self.inner.rows()
        gone = [doc_id for doc_id in shown if doc_id not in held]
        if gone:
            self.inner.delete(gone)
        changed = [i for i, info in held.items() if shown.get(i) != info]
        if changed:
            self.inner.upsert([self._seen[i, held[i].text_digest] for i in changed])

    def delete(self, ids: Sequence[str]) -> None:
        self.flush()
        for doc_id in ids:  # nor may half of it go on waiting
            self._rows.pop(doc_id, None)
            self._texts.pop(doc_id, None)
        self.writer.delete(ids)
        self.inner.delete(ids)


class DualIndex:
    """The stack's index, behind the writer."""

    def __init__(self, stores: DualStores) -> None:
        self._stores = stores

    def upsert(self, rows: Sequence[Row]) -> None:
        self._stores.hold_rows(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self._stores.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        self._stores.flush()
        return self._stores.inner.search(vector, tenant=tenant, k=k, made_by=made_by)

    def rows(self) -> Mapping[str, RowInfo]:
        self._stores.flush()
        return self._stores.inner.rows()

    def fresh(self) -> Index:
        raise Unsupported(_ONE)


class DualTexts:
    """The stack's text layer, behind the writer."""

    def __init__(self, stores: DualStores, inner: Cache) -> None:
        self._stores = stores
        self._inner = inner

    def get(self, key: Key) -> Any | None:
        self._stores.flush()
        text = self._stores.writer.text(key.get("doc"))
        return None if text is None else {"text": text.text, "version": text.version, "refs": list(text.refs)}

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._stores.hold_text(Text(key.get("doc"), value["version"], "", value["text"], tuple(value["refs"])))

    def delete(self, key: Key) -> None:
        """Nothing: a document is deleted from both stores at once, by the index's side."""

    def fresh(self) -> Cache:
        raise Unsupported(_ONE)


@contextmanager
def struck(stores: DualStores, ctx: Context, fault: str, strike: Callable[[list[Item], int], None]) -> Iterator[None]:
    """Give batches to ``strike``, with their number, instead of to the writer: those that the fault affects.

    The first load is never disturbed.
    """
    numbers = itertools.count()

    def deliver(batch: list[Item]) -> None:
        number = next(numbers)
        if number and ctx.affects(fault, f"batch-{number}"):
            strike(batch, number)
        else:
            stores.write(batch)

    stores.deliver = deliver
    try:
        yield
    finally:
        stores.deliver = stores.write


@contextmanager
def kept(stack: Any, design: str = "naive") -> Iterator[DualStores]:
    """Keep a stack's vectors and texts by a dual writer; the one inside, when there is one already."""
    existing = getattr(stack, "dual", None)
    if existing is not None:
        yield existing
        return
    if getattr(stack, "redis", None) is None:
        raise Unsupported("the stack does not say on which Redis server it keeps its texts (stack.redis)")
    folder = Path(tempfile.mkdtemp(prefix="rag-testbed-dual-"))
    try:
        stores = DualStores(stack.index, texts_at(stack.redis), f"{stack.namespace}dual:", folder / "index", design)
        try:
            with (
                wrapping.index(stack, lambda _: DualIndex(stores)),
                wrapping.cache(stack, "text", lambda inner: DualTexts(stores, inner)),
                wrapping.attribute(stack, "describe", lambda _: stores.describe),
            ):
                stack.dual = stores
                yield stores
        finally:
            stack.dual = None
            stores.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def texts_at(client: Any) -> str:
    """The server of the texts and of their change log: REDIS_LOG_URL where a sandbox has one that never evicts, or the
    stack's own.
    """
    return os.environ.get("REDIS_LOG_URL") or url_of(client)
