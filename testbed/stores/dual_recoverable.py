"""The dual write that survives a crash at any step.

Redis holds the truth, the index is derived from it::

    write ──> one Lua script: text + vector + entry in the change log        (from here on the batch is acknowledged)
                 └─> applier: log entries after the cursor -> index          (idempotent: looks at what is held now)
                        └─> snapshot file that holds its own cursor          (temporary, fsync, rename, fsync folder)
                               └─> pointer in Redis, under a fence           (a writer that was replaced cannot move it)

A process that comes up loads the published snapshot, applies the log after its cursor, and then compares every document
by content: where the log was lost or trimmed, or the snapshot is gone or torn, that is what repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from testbed.core.errors import BrokenContract
from testbed.core.ports import Index, Row
from testbed.stores import snapshot
from testbed.stores.dual import At, Item, Recovery, Text, Wrong, audit, undisturbed
from testbed.stores.snapshot import Snapshot
from testbed.stores.text import START, Pointer, TextStore, position

CHUNK = 64  # documents per script: Redis serves nobody else while one runs


class Replaced(BrokenContract):
    """Another writer has taken over; this one must not publish any more."""


class RecoverableWriter:
    """Outbox in the commit, idempotent applier, snapshot with its cursor, fenced publisher.

    Costs, against writing both stores plainly: the vector is stored twice, one log entry per change, and a sync of the
    snapshot per batch.

    Parameters
    ----------
    texts : its namespace and ``folder`` belong to this index alone
    new_index : makes an empty index
    """

    name = "recoverable"
    steps = (
        "before-commit",
        "mid-commit",
        "after-commit",
        "after-apply",
        "snapshot-torn",
        "snapshot-written",
        "snapshot-renamed",
        "after-publish",
        "after-sweep",
    )
    between = "after-commit"
    takes_redelivery = True

    def __init__(
        self,
        texts: TextStore,
        folder: Path,
        new_index: Callable[[], Index],
        at: At = undisturbed,
        chunk: int = CHUNK,
    ) -> None:
        self._texts = texts
        self._folder = folder
        self._at = at
        self._chunk = chunk
        self._index = new_index()
        self._rows: dict[str, Row] = {}
        self._cursor = START
        self._fence = ""
        self._incarnation = ""

    @property
    def index(self) -> Index:
        return self._index

    # -- coming up --------------------------------------------------------------------------------------------------

    def recover(self) -> Recovery:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._fence = self._texts.take_fence()
        self._incarnation = self._texts.incarnation()
        loaded, unreadable = self._load()
        self._take([*loaded.rows])
        fits = loaded.incarnation == self._incarnation and self._texts.is_kept(loaded.cursor)
        self._cursor = loaded.cursor if fits else self._texts.end()
        replayed = self._apply()
        repaired = self._compare_all()  # the log says what changed, only the contents say what is there
        self._publish()
        return Recovery(replayed, repaired, unreadable, self.wrong())

    def _load(self) -> tuple[Snapshot, int]:
        """The published snapshot; an empty one when there is none that can be read."""
        pointer = self._texts.published()
        if pointer is None:
            return Snapshot((), START, self._incarnation), 0
        try:
            held = snapshot.read(self._folder / pointer.snapshot)
        except FileNotFoundError:
            return Snapshot((), START), 0
        except BrokenContract:
            return Snapshot((), START), 1
        # The cursor of the file, not of the pointer: the file is what the rows are from.
        return held, 0

    def _compare_all(self) -> int:
        """Make the index say what the texts say, document by document, by content; how many had to be put right."""
        differ = [w.doc_id for w in self.wrong()]
        for doc_id in differ:
            self._settle(doc_id)
        return len(differ)

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, items: Sequence[Item]) -> None:
        self._at("before-commit")
        for start in range(0, len(items), self._chunk):
            if start:
                self._at("mid-commit")
            self._texts.commit(items[start : start + self._chunk])
        self._at("after-commit")
        self._apply()
        self._at("after-apply")
        self._publish()

    def delete(self, ids: Sequence[str]) -> None:
        self._texts.remove(ids)
        self._apply()
        self._publish()

    def _apply(self) -> int:
        """Bring the index to the end of the log. Applying a change twice, or one that was overtaken, does no harm."""
        touched: dict[str, None] = {}
        for at, doc_id in self._texts.changes(self._cursor):
            touched[doc_id] = None
            self._cursor = at
        for doc_id in touched:
            self._settle(doc_id)
        return len(touched)

    def _settle(self, doc_id: str) -> None:
        """The index row of one document becomes what is committed for it now."""
        row = self._texts.row(doc_id)
        if row is None:
            self._rows.pop(doc_id, None)
            self._index.delete([doc_id])
        else:
            self._take([row])

    def _take(self, rows: Sequence[Row]) -> None:
        self._rows.update((r.doc_id, r) for r in rows)
        self._index.upsert(rows)

    def _publish(self) -> None:
        """Snapshot, pointer, sweep, in this order: the pointer never names a file that may be torn."""
        number = position(self._cursor)
        name = f"snapshot-{int(self._fence):08d}-{number[0]:016d}-{number[1]:08d}"
        rows = tuple(row for _, row in sorted(self._rows.items()))
        snapshot.write(self._folder / name, Snapshot(rows, self._cursor, self._incarnation), self._at)
        if not self._texts.publish(self._fence, Pointer(name, self._cursor, self._incarnation)):
            (self._folder / name).unlink(missing_ok=True)
            raise Replaced(f"fence={self._fence} was taken by another writer; nothing was published")
        self._at("after-publish")
        snapshot.sweep(self._folder, keep=[name])
        self._texts.trim(self._cursor)
        self._at("after-sweep")

    # -- reading ----------------------------------------------------------------------------------------------------

    def text(self, doc_id: str) -> Text | None:
        """The committed text. Where the index is behind it, the log is applied first (read repair)."""
        text = self._texts.find(doc_id)
        row = self._rows.get(doc_id)
        if (text and text.digest) != (row and row.text_digest):
            self._apply()
            text = self._texts.find(doc_id)
        return text

    def wrong(self) -> tuple[Wrong, ...]:
        return audit(self._index, self._texts.all())
