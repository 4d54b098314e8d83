"""Ranking metrics with a cut-off, as values with canonical names.

Rankings come in with ties already broken (score descending, id ascending). The relevance grades of one question:
grade >= 1 is relevant, and is the gain of nDCG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Literal

from testbed.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class RankingMetric:
    """One metric of a ranking at a cut-off; its name carries both: ``MRR@5``."""

    kind: Literal["MRR", "nDCG", "recall"]
    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InvalidInput(f"k={self.k} must be >= 1 (metric {self.kind}@k)")

    @property
    def name(self) -> str:
        return f"{self.kind}@{self.k}"

    def score(self, ranking: Sequence[str], qrels: Mapping[str, int]) -> float:
        """The metric of one question, in [0, 1]; NaN (unscored) when nothing is relevant to it."""
        if not any(grade >= 1 for grade in qrels.values()):
            return float("nan")
        return {"MRR": reciprocal_rank, "nDCG": ndcg, "recall": recall}[self.kind](ranking, qrels, self.k)

    def mean(self, run: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, int]]) -> float:
        """Mean over the judged questions that have a relevant document; one that is missing from the run counts 0."""
        judged = [query for query in sorted(qrels) if any(grade >= 1 for grade in qrels[query].values())]
        if not judged:
            return float("nan")
        return sum(self.score(run.get(query, ()), qrels[query]) for query in judged) / len(judged)


def reciprocal_rank(ranking: Sequence[str], qrels: Mapping[str, int], k: int) -> float:
    """Reciprocal rank of the first relevant document among the top k; 0.0 when there is none.

    Raises
    ------
    InvalidInput : k < 1, or a document id appears twice.

    References
    ----------
    Voorhees, "The TREC-8 Question Answering Track Report", 1999.
    """
    for rank, doc_id in enumerate(_top(ranking, k), 1):
        if qrels.get(doc_id, 0) >= 1:
            return 1.0 / rank
    return 0.0


def ndcg(ranking: Sequence[str], qrels: Mapping[str, int], k: int) -> float:
    """Discounted cumulative gain of the top k over that of the best order; gain = grade, discount log2(rank + 1).

    Raises
    ------
    InvalidInput : k < 1, or a document id appears twice.

    References
    ----------
    Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002, with the discount of trec_eval.
    """
    best = _gain(sorted((g for g in qrels.values() if g >= 1), reverse=True)[:k])
    return _gain([max(qrels.get(doc_id, 0), 0) for doc_id in _top(ranking, k)]) / best if best else 0.0


def recall(ranking: Sequence[str], qrels: Mapping[str, int], k: int) -> float:
    """Share of the relevant documents that are among the top k; 0.0 when there are none.

    Raises
    ------
    InvalidInput : k < 1, or a document id appears twice.
    """
    relevant = {doc_id for doc_id, grade in qrels.items() if grade >= 1}
    return len(relevant.intersection(_top(ranking, k))) / len(relevant) if relevant else 0.0


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / log2(rank + 1) for rank, grade in enumerate(grades, 1))


def _top(ranking: Sequence[str], k: int) -> Sequence[str]:
    if k < 1:
        raise InvalidInput(f"k={k} must be >= 1 (ranking metric)")
    if len(set(ranking)) != len(ranking):
        twice = next(doc_id for i, doc_id in enumerate(ranking) if doc_id in ranking[:i])
        raise InvalidInput(f"document id={twice!r} appears twice in a ranking of {len(ranking)}; rank each id once")
    return ranking[:k]
