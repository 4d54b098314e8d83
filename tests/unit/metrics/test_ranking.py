from __future__ import annotations

from math import isnan, log2

import pytest

from testbed.core.errors import InvalidInput
from testbed.metrics.ranking import RankingMetric, ndcg, recall, reciprocal_rank

MRR, NDCG, RECALL = (RankingMetric(kind) for kind in ("MRR", "nDCG", "recall"))


def test_the_name_carries_the_cut_off() -> None:
    assert [m.name for m in (MRR, NDCG, RECALL, RankingMetric("MRR", 10))] == ["MRR@5", "nDCG@5", "recall@5", "MRR@10"]


@pytest.mark.parametrize(
    ("ranking", "expected"),
    [(["r", "x", "y"], 1.0), (["x", "r"], 0.5), (list("abcdr"), 0.2), (list("abcder"), 0.0), ([], 0.0)],
)
def test_reciprocal_rank_is_that_of_the_first_relevant_document_in_the_top_five(
    ranking: list[str], expected: float
) -> None:
    assert reciprocal_rank(ranking, {"r": 1, "zero": 0}, 5) == expected


def test_a_grade_of_zero_is_not_relevant() -> None:
    assert reciprocal_rank(["zero", "r"], {"zero": 0, "r": 2}, 5) == 0.5
    assert recall(["zero"], {"zero": 0, "r": 2}, 5) == 0.0


def test_ndcg_by_hand() -> None:
    # Gains 0, 2, 1 at ranks 1-3 against the best order 2, 1.
    got = 2 / log2(3) + 1 / log2(4)
    best = 2 / log2(2) + 1 / log2(3)
    assert ndcg(["x", "b", "a"], {"a": 1, "b": 2}, 5) == pytest.approx(got / best, abs=1e-15)
    assert ndcg(["b", "a"], {"a": 1, "b": 2}, 5) == 1.0
    assert ndcg(["x"], {"a": 1}, 5) == 0.0


def test_ndcg_compares_with_the_best_order_of_k_documents_only() -> None:
    many = {f"d{i}": 1 for i in range(9)}
    assert ndcg([f"d{i}" for i in range(5)], many, 5) == 1.0


def test_recall_by_hand() -> None:
    assert recall(["a", "x", "b"], {"a": 1, "b": 1, "c": 3}, 5) == pytest.approx(2 / 3)
    assert recall(["x", "a"], {"a": 1}, 1) == 0.0


def test_a_query_that_is_missing_from_the_run_counts_zero() -> None:
    qrels = {"q1": {"a": 1}, "q2": {"b": 1}}
    assert MRR.mean({"q1": ["a"]}, qrels) == 0.5


def test_a_query_without_relevant_documents_is_unscored_and_not_averaged() -> None:
    assert isnan(MRR.score(["a"], {}))
    assert isnan(NDCG.score(["a"], {"a": 0}))
    assert MRR.mean({"q1": ["a"], "q2": ["a"]}, {"q1": {"a": 1}, "q2": {}}) == 1.0
    assert isnan(MRR.mean({}, {}))


@pytest.mark.parametrize("k", [0, -1])
def test_a_cut_off_below_one_is_refused(k: int) -> None:
    with pytest.raises(InvalidInput, match=f"k={k} must be >= 1"):
        RankingMetric("MRR", k)
    with pytest.raises(InvalidInput, match=f"k={k} must be >= 1"):
        recall(["a"], {"a": 1}, k)


@pytest.mark.parametrize("score", [reciprocal_rank, ndcg, recall])
def test_a_document_ranked_twice_is_refused(score: object) -> None:
    with pytest.raises(InvalidInput, match="id='a' appears twice"):
        score(["a", "b", "a"], {"a": 1}, 5)  # type: ignore[operator]
