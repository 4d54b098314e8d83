"""How a vector and its text are written together, and what is wrong when they were not.

Two stores cannot be written in one step, so a crash, or a cut wire, can fall between them. A writer is a design for
that: what it writes first, what it calls done, and what it does when it comes up again. The designs are ``naive``
(stores/dual_published.py, with the two published repairs) and ``recoverable`` (stores/dual_recoverable.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from testbed.core import digest
from testbed.core.ports import Index, Row

# Called with the name of each step as it is passed. A test, or the worker process, dies in here.
At = Callable[[str], None]


def undisturbed(step: str) -> None:
    """The ``At`` of a writer that nobody kills."""


class Text(NamedTuple):
    """The text half of a document as it is stored."""

    doc_id: str
    version: int
    tenant: str
    text: str
    refs: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        return digest.of_text(self.text)


class Item(NamedTuple):
    """Both halves of one document on their way into the stores. ``row`` was embedded from ``text``."""

    row: Row
    text: Text


def item(row: Row, text: str, refs: tuple[str, ...] = ()) -> Item:
    """The halves of one document, the text half filled from the vector half."""
    return Item(row, Text(row.doc_id, row.version, row.tenant, text, refs))


Fault = Literal["text-behind", "vector-behind", "no-text", "no-vector", "lost"]


class Wrong(NamedTuple):
    """One document whose two halves do not belong together, or that was acknowledged and is in neither store.

    ``vector`` and ``text`` are the versions held (None: nothing is held).
    """

    doc_id: str
    fault: Fault
    vector: int | None
    text: int | None

    def story(self) -> str:
        """As a line: ``index doc:7 v2, text doc:7 v1: text-behind``."""
        held = ["nothing" if v is None else f"v{v}" for v in (self.vector, self.text)]
        return f"index {self.doc_id} {held[0]}, text {self.doc_id} {held[1]}: {self.fault}"


class Recovery(NamedTuple):
    """What a writer did when it came up, and what was still wrong when it let traffic in again.

    Parameters
    ----------
    replayed : changes applied from the log
    repaired : documents put right by comparing the stores, because the log could not be used
    unreadable : snapshots that were there and could not be read
    wrong : sorted by id; () is the invariant "both halves of every document belong together"
    """

    replayed: int = 0
    repaired: int = 0
    unreadable: int = 0
    wrong: tuple[Wrong, ...] = ()


class DualWriter(Protocol):
    """One design for writing a vector (index, in memory, saved to disk) and its text (Redis).

    1. ``recover`` is called once before anything else, also in a process that starts after a crash. It loads what is on
       disk, repairs what the design can repair, and says what is still wrong. Only then is there traffic.
    2. ``write`` takes a batch. When it returns, the batch is acknowledged: it may be lost no more. When it raises, or
       the process dies in it, it is not, and a caller that can will deliver it again.
    3. ``steps`` are the moments at which a process can die that differ from one another, in order; ``between`` is the
       one at which the first store holds the batch and the second does not.
    4. ``takes_redelivery`` is False where the design takes a message off its queue before it has dealt with it.
    """

    name: str
    steps: tuple[str, ...]
    between: str
    takes_redelivery: bool

    @property
    def index(self) -> Index: ...
    def recover(self) -> Recovery: ...
    def write(self, items: Sequence[Item]) -> None: ...
    def delete(self, ids: Sequence[str]) -> None: ...
    def text(self, doc_id: str) -> Text | None: ...
    def wrong(self) -> tuple[Wrong, ...]: ...


def audit(index: Index, texts: Mapping[str, Text]) -> tuple[Wrong, ...]:
    """Every document whose vector was not made from the text that is stored, by id."""
    rows = index.rows()
    out = []
    for doc_id in sorted({*rows, *texts}):
        row, text = rows.get(doc_id), texts.get(doc_id)
        fault: Fault
        if row is None:
            fault = "no-vector"
        elif text is None:
            fault = "no-text"
        elif row.text_digest == text.digest:
            continue
        else:
            fault = "text-behind" if text.version < row.version else "vector-behind"
        out.append(Wrong(doc_id, fault, row and row.version, text and text.version))
    return tuple(out)


def lost(index: Index, texts: Mapping[str, Text], acknowledged: Iterable[Item]) -> tuple[Wrong, ...]:
    """Acknowledged documents that neither store holds any more, in that version or a later one."""
    rows = index.rows()
    newest = {i.text.doc_id: i.text.version for i in sorted(acknowledged, key=lambda i: i.text.version)}
    out = []
    for doc_id, version in sorted(newest.items()):
        row, text = rows.get(doc_id), texts.get(doc_id)
        held = max(row.version if row else -1, text.version if text else -1)
        if held < version:
            out.append(Wrong(doc_id, "lost", row and row.version, text and text.version))
    return tuple(out)
