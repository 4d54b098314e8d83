from __future__ import annotations

import math

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import RR, R, nDCG

from testbed.metrics.grounding import answer_containment, lexical_grounding
from testbed.metrics.ranking import RankingMetric

METRICS = {"MRR": RR @ 5, "nDCG": nDCG @ 5, "recall": R @ 5}
IDS = [f"d{i:02d}" for i in range(12)]
rankings = st.lists(st.sampled_from(IDS), unique=True, max_size=9)
grades = st.dictionaries(st.sampled_from(IDS), st.integers(0, 3), min_size=1, max_size=6)
queries = st.sampled_from(["q1", "q2", "q3", "q4"])


@given(run=st.dictionaries(queries, rankings), qrels=st.dictionaries(queries, grades, min_size=1))
@pytest.mark.parametrize("kind", METRICS)
def test_agrees_with_ir_measures(kind: str, run: dict[str, list[str]], qrels: dict[str, dict[str, int]]) -> None:
    ours = RankingMetric(kind)  # type: ignore[arg-type]
    # Where nothing is relevant we leave unscored and the other side counts 0: not a difference in the metric.
    qrels = {query: found for query, found in qrels.items() if any(found.values())}
    scored = {query: {doc: 1.0 / (1 + rank) for rank, doc in enumerate(ranked)} for query, ranked in run.items()}
    if not qrels or not any(scored.values()):
        return
    theirs = ir_measures.calc_aggregate([METRICS[kind]], qrels, scored)[METRICS[kind]]
    assert ours.mean(run, qrels) == pytest.approx(theirs, abs=1e-12)


@given(ranking=rankings, qrels=grades, kind=st.sampled_from(list(METRICS)), k=st.integers(1, 12))
def test_a_score_is_between_zero_and_one_or_unscored(
    ranking: list[str], qrels: dict[str, int], kind: str, k: int
) -> None:
    score = RankingMetric(kind, k).score(ranking, qrels)  # type: ignore[arg-type]
    assert math.isnan(score) == (not any(qrels.values()))
    assert math.isnan(score) or 0.0 <= score <= 1.0 + 1e-12


@given(ranking=rankings, qrels=grades, kind=st.sampled_from(list(METRICS)), data=st.data())
def test_moving_a_relevant_document_up_never_hurts(
    ranking: list[str], qrels: dict[str, int], kind: str, data: st.DataObject
) -> None:
    places = [i for i, doc in enumerate(ranking) if i and qrels.get(doc, 0) > qrels.get(ranking[i - 1], 0)]
    if not places:
        return
    at = data.draw(st.sampled_from(places))
    better = [*ranking[: at - 1], ranking[at], ranking[at - 1], *ranking[at + 1 :]]
    metric = RankingMetric(kind)  # type: ignore[arg-type]
    if any(qrels.values()):
        assert metric.score(better, qrels) >= metric.score(ranking, qrels) - 1e-12


words = st.text(st.characters(categories=("Lu", "Ll", "Nd")), min_size=1, max_size=8)


@given(before=st.lists(words), alias=st.lists(words, min_size=1, max_size=3), after=st.lists(words))
def test_an_alias_between_spaces_is_always_found(before: list[str], alias: list[str], after: list[str]) -> None:
    assert answer_containment(" ".join([*before, *alias, *after]), [" ".join(alias)]) == 1.0


@given(passages=st.lists(st.text(max_size=40), min_size=1), text=st.text(max_size=40))
def test_grounding_is_a_share_and_a_text_grounds_itself(passages: list[str], text: str) -> None:
    score = lexical_grounding(text, passages)
    assert math.isnan(score) or 0.0 <= score <= 1.0
    itself = lexical_grounding(text, [*passages, text])
    assert math.isnan(itself) or itself == 1.0
