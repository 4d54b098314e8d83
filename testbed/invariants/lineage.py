"""lineage: vector, text and key belong to the same revision and the same model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from testbed.core.evidence import Evidence
from testbed.core.history import Ask, History, Lookup, Search, embedded_text, encoder_of
from testbed.core.types import Event, Verdict, Witness
from testbed.invariants import words

_FINGERPRINT = re.compile("[0-9a-f]{12,64}")


class _Finding(NamedTuple):
    """One thing that was checked: None is "could not tell". ``said`` goes on from who asked what."""

    holds: bool | None
    ops: tuple[int, ...] = ()
    layer: str = ""
    said: str = ""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What was compared belongs together:

    - a question's vector and the vectors that it is compared with were made by the same encoder;
    - a returned document was found by the vector of its current text, not of an older one or of another document's,
      and a document that should have been found has such a vector;
    - a cached vector was made by the encoder, and for a document from the text, that its key names;
    - a text comes from the same revision as the vector that found it, and is the text of that revision.
    """

    name: str = "lineage"

    def check(self, evidence: Evidence) -> Verdict:
        return self.judge(History(evidence))

    def judge(self, history: History) -> Verdict:
        findings = [f for f in _findings(history) if f is not None]
        broken = [f for f in findings if f.holds is False]
        if broken:
            smallest = min(broken, key=lambda f: (len(f.ops) != 2, f.ops[-1]))
            return Verdict(self.name, False, len(broken), len(findings), _witness(history, smallest))
        unknown = sum(f.holds is None for f in findings)
        if unknown or not findings:
            why = f"{unknown} of {len(findings)} vectors and texts are of unknown origin"
            return Verdict(self.name, None, 0, len(findings), why=why if findings else "the stack shows no vectors")
        return Verdict(self.name, True, 0, len(findings))

    def witnesses(self, history: History) -> list[Witness]:
        return [_witness(history, f) for f in _findings(history) if f is not None and f.holds is False]


def _witness(history: History, found: _Finding) -> Witness:
    return Witness(found.ops, found.layer, words.asked(history, found.ops[-1]) + found.said)


def _findings(history: History) -> Iterator[_Finding | None]:
    if history.searches_index:
        for search in history.searches:
            yield _same_encoder(search)
            yield _current_vectors(history, search)
    for lookup in history.lookups:
        if lookup.hit and lookup.event.layer == "embedding":
            yield _as_the_key_says(lookup)
    for ask in history.asks.values():
        yield from _texts(history, ask)


def _same_encoder(search: Search) -> _Finding | None:
    """One finding a search, told by a document that should have been found where there is one."""
    if search.strays:
        row = search.strays[0]
        said = f"; its vector is of encoder {search.made_by[:8]}, that of {row.key.get('doc')} of"
        said += f" {encoder_of(row.value)[:8]}, indexed at op {row.op} (index)"
        return _Finding(False, (row.op, search.event.op), "index", said)
    seen = [row for _, row in search.rows if row is not None]
    if not seen:
        return None
    return _Finding(True if search.made_by and all(encoder_of(row.value) for row in seen) else None)


def _current_vectors(history: History, search: Search) -> _Finding | None:
    """One finding a search: by what was found, else by what should have been found."""
    op, checked = search.event.op, False
    for did, rows in (("found", search.rows), ("holds", search.missed)):
        for doc_id, row in rows:
            if row is None:
                told = _lost(history, doc_id, op) if did == "holds" else None
            else:
                told = _orphan(history, doc_id, row, op) or _current_vector(history, doc_id, row, op)
            if told is None:
                continue
            if not told:
                checked = True
                continue
            wrote = history.timeline.since(doc_id, op) if row is None else row.op
            verb = f"the index {did} {doc_id} by " if row is not None else f"the index holds no vector of {doc_id}"
            return _Finding(False, (wrote, op), "index", f"; {verb}{told} (index)")
    return _Finding(True) if checked else None


def _current_vector(history: History, doc_id: str, row: Event, op: int) -> str | None:
    """What is wrong with the vector of a document; "" nothing, None: the document is not known."""
    current, since = history.timeline.current(doc_id, op), history.timeline.since(doc_id, op)
    if since < 0:
        return None
    version = row.key.get("version", "")
    if current is not None and version == str(current.version):
        embedded = embedded_text(row.value)
        if not embedded and embedded_text(history.made(row.op, current.text)) == current.text:
            return f"a vector of op {row.op} that is not the one which was made of its text"
        if embedded == current.text:
            return ""
        if not history.timeline.has_text(doc_id, embedded):
            others = history.timeline.revisions(embedded)
            # Of no document: something made of the text (a chunk, a text with its title).
            return f"the vector of the text of {others[0].doc_id}, of op {row.op}" if others else ""
        version = f"{version} in name only, and of an older text,"
    now = f"v{current.version} has been current since" if current is not None else "it was deleted at"
    return f"the vector of v{version} of op {row.op}, but {now} op {since}"


def _orphan(history: History, doc_id: str, row: Event, op: int) -> str:
    """What is wrong with a vector under an id that is no document's: it was made of a text that is in force no more."""
    if history.timeline.tenant(doc_id) is not None:
        return ""
    made_of = history.timeline.revisions(embedded_text(row.value))
    if not made_of or any(history.timeline.current(r.doc_id, op) == r for r in made_of):
        return ""
    old = made_of[-1]
    since = history.timeline.since(old.doc_id, op)
    return f"the vector of {old.doc_id} v{old.version} of op {row.op}, which has not been in force since op {since}"


def _lost(history: History, doc_id: str, op: int) -> str | None:
    """Whether a document that is there has no vector."""
    current = history.timeline.current(doc_id, op)
    return None if current is None else f", v{current.version} of which is in force"


def _as_the_key_says(lookup: Lookup) -> _Finding | None:
    read = lookup.event
    model, made_by = read.key.get("model", ""), encoder_of(read.value)
    if not made_by:
        return _Finding(None)
    if not _FINGERPRINT.fullmatch(model):  # a key that holds a model's name, or none, says nothing to compare with
        return None
    right = model.startswith(made_by)
    # A question may be expanded before it is embedded, so only a document's vector tells the text of its key.
    if right and (read.key.get("role") != "document" or embedded_text(read.value) == read.key.get("text")):
        return _Finding(True)
    why = f"made by encoder {made_by[:8]}, not {model[:8]}" if not right else "made from another text"
    wrote = "" if lookup.write is None else f", written at op {lookup.write.op}"
    ops = (read.op,) if lookup.write is None else (lookup.write.op, read.op)
    return _Finding(False, ops, "embedding", f" and {words.got('embedding')} an entry {why}{wrote} (embedding cache)")


def _texts(history: History, ask: Ask) -> Iterator[_Finding]:
    """Each served source is the recorded text of its revision, and of the revision whose vector found it."""
    found = {doc_id: row for search in ask.searches for doc_id, row in search.rows} if history.searches_index else {}
    for doc_id, version, text in ask.sources:
        recorded = history.evidence.docs.get((doc_id, version))
        if recorded is None:
            yield _Finding(None)
        elif recorded.text != text:
            said = f" and was shown a text of {doc_id} that is not its v{version}"
            yield _Finding(False, (recorded.introduced, ask.op.index), ask.via, said)
        else:
            yield _paired(ask, doc_id, version, found.get(doc_id))


def _paired(ask: Ask, doc_id: str, version: int, row: Event | None) -> _Finding:
    if row is None or row.key.get("version", "") == str(version):
        return _Finding(True)
    said = f", found {doc_id} by the vector of v{row.key.get('version')} of op {row.op}"
    return _Finding(False, (row.op, ask.op.index), "text", f"{said} and was shown the text of v{version}")
