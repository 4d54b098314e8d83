"""dict-with-losses: a cache gives back the last value put under the same key, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.core.evidence import Evidence
from testbed.core.history import History, Lookup
from testbed.core.types import Verdict, Witness
from testbed.invariants import words

_OUTERMOST_FIRST = ("answer", "retrieval", "embedding", "text")


@dataclass(frozen=True, slots=True)
class DictWithLosses:
    """Every hit of every cache layer, against a dict that was given the same puts and deletes.

    Some relaxed forms are lawful, see ``History.lawful``: near matches of the answer cache, and values of an older
    corpus epoch whose documents have not changed. Tiers inside a layer are the layer's own business. Could not tell:
    near matches between questions whose subject is not known.
    """

    name: str = "dict-with-losses"

    def check(self, evidence: Evidence) -> Verdict:
        return self.judge(History(evidence))

    def judge(self, history: History) -> Verdict:
        hits = [x for x in history.lookups if x.hit and "." not in x.event.layer]
        lawful = [history.lawful(x) for x in hits]
        broken = [x for x, holds in zip(hits, lawful, strict=True) if holds is False]
        if broken:
            smallest = _witness(history, min(broken, key=_size))
            return Verdict(self.name, False, len(broken), len(hits), smallest)
        unknown = lawful.count(None)
        if unknown:
            why = f"{unknown} of {len(hits)} hits came from an entry that may or may not be the right one"
            return Verdict(self.name, None, 0, len(hits), why=why)
        if not history.lookups:
            return Verdict(self.name, None, why="the stack shows no cache")
        return Verdict(self.name, True, 0, len(hits))

    def witnesses(self, history: History) -> list[Witness]:
        hits = (x for x in history.lookups if x.hit and "." not in x.event.layer)
        return [_witness(history, x) for x in hits if history.lawful(x) is False]


def _size(lookup: Lookup) -> tuple[bool, int, int]:
    """Violations with both a write and a read first; then the outermost layer, which askers see; then the earliest."""
    layer = lookup.event.layer
    depth = _OUTERMOST_FIRST.index(layer) if layer in _OUTERMOST_FIRST else len(_OUTERMOST_FIRST)
    return lookup.write is None, depth, lookup.event.op


def _witness(history: History, lookup: Lookup) -> Witness:
    read, write = lookup.event, lookup.write
    if write is None:
        story = f"{words.asked(history, read.op)} and {words.got(read.layer)} an entry {words.where(lookup)}"
        return Witness((read.op,), read.layer, story)
    story = words.served_from(history, lookup, write)
    if not lookup.live:
        story = story.removesuffix(")") + ", replaced or deleted before)"
    return Witness((write.op, read.op), read.layer, story)
