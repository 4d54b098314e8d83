"""Scored twice: faithful to what was served, and true to what this asker should have been served.

An answer that repeats a stale or foreign passage word for word is perfectly faithful. So each answer is held against
the claims of its own sources, and against the one claim that is true for this asker now; the difference between the
two means is what pollution did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, Literal, NamedTuple, Protocol

from testbed.core.types import Claim

FAITHFUL, TRUE = "faithful", "true"


class ClaimLanguage(Protocol):
    """What reads claims out of texts and compares them (``metrics.claims``)."""

    def extract(self, text: str, lexicon: Mapping[str, Any]) -> tuple[Claim, ...]: ...
    def supported(self, claim: Claim, context_claims: Sequence[Claim]) -> bool: ...
    def equals(self, claim: Claim, truth: Claim) -> bool: ...


class ClaimReader:
    """Claims of the texts of one run, each text read once; shared by its arms."""

    def __init__(self, language: ClaimLanguage, lexicon: Mapping[str, Any]) -> None:
        self.language = language
        self._lexicon = lexicon
        self._by_text: dict[str, tuple[Claim, ...]] = {}

    def of(self, digest: str, text: str) -> tuple[Claim, ...]:
        if digest not in self._by_text:
            self._by_text[digest] = tuple(self.language.extract(text, self._lexicon))
        return self._by_text[digest]


def faithful(claims: Sequence[Claim], served: Sequence[Claim], supported: Callable[..., bool]) -> float:
    """Share of the answer's claims that the claims of the served passages support; NaN when it makes none."""
    return sum(supported(claim, served) for claim in claims) / len(claims) if claims else nan


def true(claims: Sequence[Claim], truth: Claim | None, equals: Callable[[Claim, Claim], bool]) -> float:
    """1.0 when the answer states the true claim and contradicts it nowhere, else 0.0; NaN when none is known to be.

    A contradiction is another value for the same attribute of the same thing: an answer that gives both is no help.
    An answer without claims, an abstention among them, is not true.
    """
    if truth is None:
        return nan
    about = [claim for claim in claims if (claim.entity, claim.attribute) == (truth.entity, truth.attribute)]
    return float(bool(about) and all(equals(claim, truth) for claim in about))


class Graded(NamedTuple):
    faithful: float
    true: float
    abstained: bool


@dataclass(frozen=True, slots=True)
class Quadrants:
    """Counts of answers by faithful x true; abstentions are a class of their own.

    ``faithful_untrue`` is the pollution that faithfulness alone cannot see. ``unscored`` counts answers for which
    one of the two is not known. ``gap`` is mean faithful - mean true over the asks that were answered and scored.
    """

    faithful_true: int = 0
    faithful_untrue: int = 0
    unfaithful_true: int = 0
    unfaithful_untrue: int = 0
    abstained: int = 0
    unscored: int = 0
    gap: float = nan


Quadrant = Literal["faithful_true", "faithful_untrue", "unfaithful_true", "unfaithful_untrue", "abstained", "unscored"]


def quadrant(scored: Graded) -> Quadrant:
    """The class of one answer. Faithful means that every claim is supported."""
    if scored.abstained:
        return "abstained"
    if isnan(scored.faithful) or isnan(scored.true):
        return "unscored"
    if scored.faithful == 1.0:
        return "faithful_true" if scored.true == 1.0 else "faithful_untrue"
    return "unfaithful_true" if scored.true == 1.0 else "unfaithful_untrue"


def quadrants(answers: Iterable[Graded]) -> Quadrants:
    counts: dict[str, int] = {}
    gaps = []
    for scored in answers:
        name = quadrant(scored)
        counts[name] = counts.get(name, 0) + 1
        if name not in ("abstained", "unscored"):
            gaps.append(scored.faithful - scored.true)
    return Quadrants(**counts, gap=sum(gaps) / len(gaps) if gaps else nan)
