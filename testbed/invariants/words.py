"""The plain words of a witness: one write, one read, and what is wrong between them."""

from __future__ import annotations

from collections.abc import Iterable

from testbed.core.history import History, Lookup
from testbed.core.types import Event, Witness

# What an asker got out of a layer's entry.
_GOT = {
    "answer": "was answered from",
    "retrieval": "was given the ranking of",
    "embedding": "was searched for with the vector of",
    "text": "was shown the text of",
    "prefix": "was read with the KV block of",
}


def quote(text: str, limit: int = 90) -> str:
    """A text on one line between quotes, cut when long; control characters are shown, not sent to the terminal."""
    line = " ".join(text.split())
    line = line if len(line) <= limit else line[: limit - 1] + "…"
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in line) + '"'


def asked(history: History, op: int) -> str:
    """Who asked what: ``op 18: tenant birch asked "..."``."""
    row = history.ops.get(op)
    if row is None or row.do != "ask":
        return f"op {op}: {row.do} {quote(row.id)}" if row is not None else f"op {op}"
    who = f"tenant {row.tenant} asked" if row.tenant else "someone asked"
    return f"op {op}: {who} {quote(history.evidence.texts.get(row.text, row.id))}"


def got(layer: str) -> str:
    return _GOT.get(layer, f"was served from {layer} by")


def entry(history: History, write: Event, reader: str) -> str:
    """The entry and who wrote it when: ``acme's entry written at op 7``."""
    owner = history.asker(write)
    whose = f"{owner}'s entry" if owner and owner != reader else "the entry"
    return f"{whose} written at op {write.op}"


def where(lookup: Lookup) -> str:
    """The layer and what its key lacks: ``(answer cache, key without the tenant)``."""
    lacks = [f"the {part}" for part in lookup.differs if part != "text"]
    if lookup.write is None:
        return f"({lookup.event.layer} cache, a value that nobody put)"
    if lacks:
        return f"({lookup.event.layer} cache, key without {' and '.join(lacks)})"
    if "text" in lookup.differs:
        how = "matched by meaning" if lookup.event.layer == "answer" else "under the name of another text"
        return f"({lookup.event.layer} cache, {how})"
    return f"({lookup.event.layer} cache)"


def served_from(history: History, lookup: Lookup, write: Event) -> str:
    """The whole story of a hit and its write."""
    read = lookup.event
    op = history.ops.get(read.op)
    verb = got(read.layer) if op is not None and op.do == "ask" else "was served"
    story = f"{asked(history, read.op)} and {verb} {entry(history, write, history.asker(read))}"
    if "text" in lookup.differs and write.key.get("text") is not None:
        story += f" for {quote(history.evidence.texts.get(write.key['text'], write.key['text']))}"
    mistaken = "tenant" in read.key and "tenant" not in lookup.differs and history.asker(read) != history.asker(write)
    under = f", both under the key of tenant {read.key['tenant']})" if mistaken else ")"
    return f"{story} {where(lookup).removesuffix(')')}{under}"


def pair(found: Iterable[Witness]) -> Witness | None:
    """The first witness of one write and one read, else the first of all. ``found`` is in the order of the ops."""
    first = None
    for witness in found:
        if len(witness.ops) == 2:
            return witness
        first = first or witness
    return first
