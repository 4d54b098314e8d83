"""only-complete-values: what a cache was given to keep is a complete, successful answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.core.evidence import Evidence
from testbed.core.history import Ask, History
from testbed.core.types import Verdict, Witness
from testbed.invariants import words
from testbed.invariants.words import pair

_ENDS = (".", "!", "?", "…", '"', "'", ")", "]", "`", "*", "|")
_TAIL = 40  # characters at the end of an answer that are looked up in its sources
_WORD = re.compile(r"\w{4,}")
_FEW = 3  # an answer of fewer words is not judged by them
_LEAST_READ = 0.25  # of what is read, even retold, a quarter of the words stand there


@dataclass(frozen=True, slots=True)
class OnlyCompleteValues:
    """Every answer that the answer cache served says something, was read from something, and ends where it should.

    A cache that gives back an error page word for word is a perfect dict with losses: it is the admission that was
    wrong. An abstention is a complete answer. Could not tell: answers without sources on a stack that never names
    any, and unpunctuated answers that do not occur in their sources.
    """

    name: str = "only-complete-values"

    def check(self, evidence: Evidence) -> Verdict:
        return self.judge(History(evidence))

    def judge(self, history: History) -> Verdict:
        flaws = _flaws(history)
        broken = [(ask, flaw) for ask, flaw in flaws if flaw]
        if broken:
            return Verdict(self.name, False, len(broken), len(flaws), pair(_witness(history, a, f) for a, f in broken))
        unknown = sum(flaw is None for _, flaw in flaws)
        if unknown:
            why = f"{unknown} of {len(flaws)} cached answers may be whole or cut, their sources do not tell"
            return Verdict(self.name, None, 0, len(flaws), why=why)
        if not history.lookups:
            return Verdict(self.name, None, why="the stack shows no cache")
        return Verdict(self.name, True, 0, len(flaws))

    def witnesses(self, history: History) -> list[Witness]:
        return [_witness(history, ask, flaw) for ask, flaw in _flaws(history) if flaw]


def _flaws(history: History) -> list[tuple[Ask, str | None]]:
    """Every ask that the answer cache served, with what is wrong with what it got."""
    names_sources = any(ask.sources for ask in history.asks.values())
    served = [ask for ask in history.asks.values() if ask.answer is not None and ask.hit("answer") is not None]
    return [(ask, _flaw(history, ask, names_sources)) for ask in served]


def _flaw(history: History, ask: Ask, names_sources: bool) -> str | None:
    """What is wrong with a cached answer; "" nothing, None: could not tell."""
    text = history.evidence.texts.get(ask.answer.value, "").strip() if ask.answer is not None else ""
    if ask.abstained:
        return ""
    if not text:
        return "an empty answer"
    if not ask.sources:
        return "an answer that was read from nothing" if names_sources else None
    sources = [history.evidence.texts.get(digest, "") for _, _, digest in ask.sources]
    if not _read_from(text, sources):
        return "an answer that has hardly a word of its sources"
    return "" if text.endswith(_ENDS) else _cut(text[-_TAIL:], sources)


def _read_from(text: str, sources: Sequence[str]) -> bool:
    words = _WORD.findall(text.lower())
    read = set(_WORD.findall(" ".join(sources).lower()))
    return len(words) < _FEW or sum(word in read for word in words) >= _LEAST_READ * len(words)


def _cut(tail: str, sources: Iterable[str]) -> str | None:
    """Whether a text goes on, on the same line, where this end of it stops."""
    follow = [source.partition(tail)[2] for source in sources if tail in source]
    if not follow:
        return None
    whole = any(not rest.strip() or rest.lstrip(" ").startswith("\n") for rest in follow)
    return "" if whole else "an answer that was cut off"


def _witness(history: History, ask: Ask, flaw: str) -> Witness:
    hit = ask.hit("answer")
    said = f"{words.asked(history, ask.op.index)} and was served {flaw}"
    if hit is None or hit.write is None or hit.write.op == ask.op.index:
        return Witness((ask.op.index,), "answer", f"{said} (answer cache)")
    return Witness((hit.write.op, ask.op.index), "answer", f"{said}, admitted at op {hit.write.op} (answer cache)")
