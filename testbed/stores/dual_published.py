"""Dual writes as they are found in services and in print, each with the step at which it breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from testbed.core.errors import BrokenContract, Unavailable
from testbed.core.ports import Index, Row
from testbed.stores import snapshot
from testbed.stores.dual import At, Item, Recovery, Text, Wrong, audit, undisturbed
from testbed.stores.snapshot import Snapshot
from testbed.stores.text import START, TextStore

INDEX_FILE = "index"


class _Saved:
    """An index in memory that is saved over its own file, and loaded from it when it can be read."""

    def __init__(self, folder: Path, new_index: Callable[[], Index], at: At) -> None:
        self._file = folder / INDEX_FILE
        self._at = at
        self._rows: dict[str, Row] = {}
        self.index = new_index()

    def load(self) -> int:
        """1 when the file could not be read: the index is then empty."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.add(snapshot.read(self._file).rows)
        except FileNotFoundError:
            return 0
        except BrokenContract:
            return 1
        return 0

    def add(self, rows: Sequence[Row]) -> None:
        self._rows.update((r.doc_id, r) for r in rows)
        self.index.upsert(rows)

    def drop(self, ids: Sequence[str]) -> None:
        for doc_id in ids:
            self._rows.pop(doc_id, None)
        self.index.delete(ids)

    def save(self) -> None:
        rows = tuple(row for _, row in sorted(self._rows.items()))
        snapshot.write_in_place(self._file, Snapshot(rows), self._at)


class NaiveWriter:
    """The vectors, then the texts, and a log line when the second fails.

    References
    ----------
    langchain-ai/langchain #40226: a failed upsert is not looked at, the stores stay apart for good.
    """

    name = "naive"
    steps: tuple[str, ...] = ("before-vector", "index-torn", "after-vector", "mid-text", "after-text")
    between = "after-vector"
    takes_redelivery = False
    texts_come_later = True  # ``write_texts`` is a step of its own, which something else may delay

    def __init__(self, texts: TextStore, folder: Path, new_index: Callable[[], Index], at: At = undisturbed) -> None:
        self._texts = texts
        self._at = at
        self._saved = _Saved(folder, new_index, at)
        self.failed = 0  # text writes that were given up

    @property
    def index(self) -> Index:
        return self._saved.index

    def recover(self) -> Recovery:
        unreadable = self._saved.load()
        return Recovery(unreadable=unreadable, wrong=self.wrong())

    def write(self, items: Sequence[Item]) -> None:
        self.write_vectors(items)
        self.write_texts(items)

    def write_vectors(self, items: Sequence[Item]) -> None:
        self._at("before-vector")
        self._saved.add([i.row for i in items])
        self._saved.save()
        self._at("after-vector")

    def write_texts(self, items: Sequence[Item]) -> None:
        for number, each in enumerate(items):
            if number == len(items) // 2:
                self._at("mid-text")
            self._put(each.text)
        self._at("after-text")

    def _put(self, text: Text) -> None:
        try:
            self._texts.put(text)
        except Unavailable:
            self.failed += 1  # the fault that is shown: counted, and nothing follows from it

    def delete(self, ids: Sequence[str]) -> None:
        self._saved.drop(ids)
        self._saved.save()
        for doc_id in ids:
            self._texts.drop(doc_id)

    def text(self, doc_id: str) -> Text | None:
        return self._texts.find(doc_id)

    def wrong(self) -> tuple[Wrong, ...]:
        return audit(self.index, self._texts.all())


class CommitHookWriter(NaiveWriter):
    """As published: a hook on the index's commit sends each change to a Redis Stream, a consumer writes the texts.

    The consumer starts at the end of the stream, and the hook runs after the commit: a crash between commit and hook,
    or between hook and consumer, loses texts for good.

    References
    ----------
    As published: Redis Streams as the change log, bound to a Faiss commit hook.
    """

    name = "commit-hook"
    steps = ("before-vector", "index-torn", "after-vector", "mid-send", "after-send", "mid-text", "after-text")

    def recover(self) -> Recovery:
        self._position = self._texts.last_sent()
        return super().recover()

    def write_texts(self, items: Sequence[Item]) -> None:
        for number, each in enumerate(items):
            if number == len(items) // 2:
                self._at("mid-send")
            self._texts.send(each.text)
        self._at("after-send")
        self._consume()
        self._at("after-text")

    def _consume(self) -> None:
        waiting = self._texts.sent(self._position)
        for number, (at, text) in enumerate(waiting):
            if number == len(waiting) // 2:
                self._at("mid-text")
            self._put(text)
            self._position = at

    _position = START


class OneScriptWriter(NaiveWriter):
    """As published: one Lua script writes the text and the id of its vector; the index itself is saved now and then.

    Atomic in Redis, and Redis is one of the two stores only: what the index had not saved is gone with the process,
    while Redis says that it is there.

    References
    ----------
    As published: the dual write of vector id and text key made atomic by a Lua script.
    """

    name = "one-script"
    steps = ("before-vector", "after-vector", "mid-commit", "after-commit", "index-torn", "after-save")
    between = "after-commit"
    texts_come_later = False
    SAVE_EVERY = 64  # documents

    def __init__(self, texts: TextStore, folder: Path, new_index: Callable[[], Index], at: At = undisturbed) -> None:
        super().__init__(texts, folder, new_index, at)
        self._unsaved = 0

    def write(self, items: Sequence[Item]) -> None:
        self._at("before-vector")
        self._saved.add([i.row for i in items])
        self._at("after-vector")
        half = (len(items) + 1) // 2
        self._texts.commit(items[:half])
        self._at("mid-commit")
        self._texts.commit(items[half:])
        self._at("after-commit")
        self._unsaved += len(items)
        if self._unsaved >= self.SAVE_EVERY:
            self._saved.save()
            self._unsaved = 0
            self._at("after-save")
