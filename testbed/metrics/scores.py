"""One row of scores for every ask of an arm."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any

from testbed.core.evidence import Evidence, OpRow
from testbed.core.history import Ask, History
from testbed.core.types import Gold
from testbed.metrics import claims, faithfulness, grounding
from testbed.metrics.faithfulness import FAITHFUL, TRUE, ClaimReader, Graded, Quadrants
from testbed.metrics.grounding import ANSWER_CONTAINMENT, LEXICAL_GROUNDING
from testbed.metrics.ranking import RankingMetric

RANKING = (RankingMetric("MRR"), RankingMetric("nDCG"), RankingMetric("recall"))
LEAK_RATE, STALE_RATE, ABSTAINED = "leak rate", "stale rate", "abstained"
# Metrics of which less is better; all others want more.
LOWER_IS_BETTER = frozenset({LEAK_RATE, STALE_RATE, ABSTAINED})
_BEHIND = re.compile(r"behind > ([0-9]+) s")


def is_lower_better(metric: str) -> bool:
    return metric in LOWER_IS_BETTER or metric.startswith("bad hits[") or limit_of(metric) is not None


def limit_of(metric: str) -> float | None:
    """The seconds of ``behind > <seconds> s``; None for another metric."""
    found = _BEHIND.fullmatch(metric)
    return float(found.group(1)) if found else None


@dataclass(frozen=True, slots=True)
class AskScore:
    """The scores of one ask.

    ``metrics`` by canonical name, NaN where unscored. ``via`` is the layer that served it, "none" when no cache did.
    ``stale`` and ``foreign`` are None where the trace cannot tell. ``at_s`` is when it was asked, in logical seconds.
    ``behind_s`` is for how long the oldest of its sources had been replaced or deleted; 0 when none had. ``question``
    is the same for asks of a tenant that ask the same thing, in whatever words; "" unknown.
    """

    op: int
    query: str
    tenant: str
    metrics: Mapping[str, float]
    via: str
    stale: bool | None
    foreign: bool | None
    abstained: bool
    at_s: float = 0.0
    behind_s: float = 0.0
    question: str = ""

    def value(self, metric: str) -> float:
        """A score by name; the classes count as 1.0 and 0.0, unknown is NaN."""
        if metric == LEAK_RATE:
            return _rate(self.foreign)
        if metric == STALE_RATE:
            return _rate(self.stale)
        return float(self.abstained) if metric == ABSTAINED else self.metrics.get(metric, nan)

    def late(self, limit_s: float) -> float:
        """1.0 when the answer was older than a service with this limit may give; NaN where that cannot be told."""
        return nan if self.stale is None else float(self.behind_s > limit_s)

    def row(self, arm: str) -> dict[str, Any]:
        """The row of the score table: labels, and a float for each metric."""
        rates = {name: self.value(name) for name in (ABSTAINED, LEAK_RATE, STALE_RATE)}
        return {"arm": arm, "op": self.op, "query": self.query, "tenant": self.tenant, **self.metrics, **rates}


def score_asks(evidence: Evidence, *, reader: ClaimReader | None = None) -> list[AskScore]:
    """Scores of every ask, in order. ``reader`` lets the arms of a run share what was read from their texts."""
    return score_history(History(evidence), reader=reader)


def score_history(history: History, *, reader: ClaimReader | None = None) -> list[AskScore]:
    evidence = history.evidence
    if reader is None:
        reader = claim_reader(evidence)
    at_s = {op.index: op.at_s for op in evidence.ops}
    return [_score(ask, evidence, evidence.gold.get(ask.op.index), reader, at_s) for ask in history.asks.values()]


def claim_reader(evidence: Evidence) -> ClaimReader | None:
    """A reader of claims for data with a ledger of facts; None for other data."""
    return None if evidence.lexicon is None else ClaimReader(claims, evidence.lexicon)


def mean(scores: Iterable[AskScore], metric: str) -> tuple[float, int]:
    """Mean of a metric over the asks where it is scored (NaN when nowhere), and how many are unscored."""
    values = [score.value(metric) for score in scores]
    known = [value for value in values if not isnan(value)]
    return (sum(known) / len(known) if known else nan), len(values) - len(known)


def question_of(op: OpRow, gold: Gold | None) -> str:
    """What asks of one tenant have in common that ask the same thing: the subject, else the query's id."""
    return f"{op.tenant}/{gold.subject if gold is not None and gold.subject else op.id}"


def names(scores: Sequence[AskScore]) -> tuple[str, ...]:
    """The metrics of a table of scores, in the order in which they are shown."""
    return (*dict.fromkeys(name for score in scores for name in score.metrics), ABSTAINED, LEAK_RATE, STALE_RATE)


def table(scores: Iterable[AskScore]) -> Quadrants:
    """Faithful x true, on data with a ledger."""
    return faithfulness.quadrants(
        Graded(s.metrics[FAITHFUL], s.metrics[TRUE], s.abstained) for s in scores if TRUE in s.metrics
    )


def _score(
    ask: Ask, evidence: Evidence, gold: Gold | None, reader: ClaimReader | None, at_s: Mapping[int, float]
) -> AskScore:
    metrics = {metric.name: metric.score(ask.ranking, gold.relevant if gold else {}) for metric in RANKING}
    if reader is not None:
        metrics |= _against_ledger(ask, evidence, gold, reader)
    else:
        metrics |= _by_words(ask, evidence, gold)
    return AskScore(
        op=ask.op.index,
        query=ask.op.id,
        tenant=ask.op.tenant,
        metrics=metrics,
        via=ask.via,
        stale=ask.stale,
        foreign=ask.foreign,
        abstained=ask.abstained,
        at_s=ask.op.at_s,
        behind_s=max((ask.op.at_s - at_s[old.since] for old in ask.superseded), default=0.0),
        question=question_of(ask.op, gold),
    )


def _against_ledger(ask: Ask, evidence: Evidence, gold: Gold | None, reader: ClaimReader) -> dict[str, float]:
    if ask.answer is None or ask.abstained:
        return {FAITHFUL: nan, TRUE: nan if gold is None or gold.claim is None else 0.0}
    said = reader.of(ask.answer.value, evidence.texts.get(ask.answer.value, ""))
    served = [c for _, _, text in ask.sources for c in reader.of(text, evidence.texts.get(text, ""))]
    return {
        FAITHFUL: faithfulness.faithful(said, served, reader.language.supported),
        TRUE: faithfulness.true(said, gold.claim if gold else None, reader.language.equals),
    }


def _by_words(ask: Ask, evidence: Evidence, gold: Gold | None) -> dict[str, float]:
    accept = gold.accept if gold else ()
    if ask.answer is None or ask.abstained:
        return {ANSWER_CONTAINMENT: 0.0 if accept else nan, LEXICAL_GROUNDING: nan}
    text = evidence.texts.get(ask.answer.value, "")
    passages = [evidence.texts.get(digest, "") for _, _, digest in ask.sources]
    return {
        ANSWER_CONTAINMENT: grounding.answer_containment(text, accept),
        LEXICAL_GROUNDING: grounding.lexical_grounding(text, passages) if passages else nan,
    }


def _rate(known: bool | None) -> float:
    return nan if known is None else float(known)
