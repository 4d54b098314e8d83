"""freshness: no answer is read from a revision that had been replaced, or from a document that had been deleted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testbed.core.evidence import Evidence
from testbed.core.history import Ask, History, Lookup, Superseded
from testbed.core.types import Verdict, Witness
from testbed.invariants import words
from testbed.invariants.words import pair


@dataclass(frozen=True, slots=True)
class Freshness:
    """Every served source is the revision in force at that op. Could not tell: answers that name no source."""

    name: str = "freshness"

    def check(self, evidence: Evidence) -> Verdict:
        return self.judge(History(evidence))

    def judge(self, history: History) -> Verdict:
        told = [ask for ask in history.asks.values() if ask.stale is not None]
        stale = [ask for ask in told if ask.stale]
        if stale:
            found = (witness for ask in stale for witness in _witnesses(history, ask))
            return Verdict(self.name, False, len(stale), len(told), pair(found))
        # An answer that says nothing names no source and cannot be stale; one that says something should name it.
        silent = [a for a in history.asks.values() if a.stale is None and not (a.abstained and not a.sources)]
        if silent or not told:
            why = f"{len(silent)} of {len(history.asks)} asks were served without a source whose revisions are known"
            return Verdict(self.name, None, 0, len(told), why=why)
        return Verdict(self.name, True, 0, len(told))

    def witnesses(self, history: History) -> list[Witness]:
        each = (pair(_witnesses(history, ask)) for ask in history.asks.values() if ask.stale)
        return [witness for witness in each if witness is not None]


def _witnesses(history: History, ask: Ask) -> Iterator[Witness]:
    return (_witness(history, ask, old) for old in ask.superseded)


def _witness(history: History, ask: Ask, old: Superseded) -> Witness:
    read = _read(ask, old)
    layer = "source" if read is None else read.event.layer
    row = history.evidence.docs.get((old.doc_id, old.version))
    if read is not None and read.write is not None:
        wrote, how = read.write.op, f"entry written at op {read.write.op} ({layer} cache)"
    else:
        wrote = -1 if row is None else row.introduced
        how = f"v{old.version} came at op {wrote}" if row is not None else f"v{old.version} was never recorded"
    now = "it was deleted" if old.current is None else f"v{old.current} has been current since"
    since = f"{now} at op {old.since}" if old.current is None else f"{now} op {old.since}"
    said = f"and was answered from {old.doc_id} v{old.version}, but {since}; {how}"
    ops = (wrote, ask.op.index) if wrote >= 0 else (ask.op.index,)
    return Witness(ops, layer, f"{words.asked(history, ask.op.index)} {said}")


def _read(ask: Ask, old: Superseded) -> Lookup | None:
    """The lookup that brought the old revision: the answer cache when it hit, else the document's text."""
    whole = ask.hit("answer")
    if whole is not None:
        return whole
    shown = old.under or old.doc_id
    texts = (x for x in ask.lookups if x.hit and x.event.layer == "text" and x.event.key.get("doc") == shown)
    return next(texts, None)
