from __future__ import annotations

import itertools
from functools import cache

import pytest

from testbed.caches.gate import same_numbers_negations_entities as same
from testbed.core.types import Claim
from testbed.corpora.facts import FactCorpus
from testbed.corpora.twins import KINDS, build_twins
from testbed.metrics import claims


@cache
def twins() -> FactCorpus:
    return build_twins()


def truth(query_id: str) -> Claim:
    query = next(q for q in twins().queries if q.id == query_id)
    claim = twins().gold(0, query, {d.id: 1 for d in twins().docs}).claim
    assert claim is not None
    return claim


def test_every_page_states_the_claim_that_is_true_of_it_and_no_other() -> None:
    pages = {d.id: d for d in twins().docs}
    for query_id, doc_id in twins().records.items():
        assert claims.extract(pages[doc_id].text, twins().lexicon) == (truth(query_id),)


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_questions_of_a_kind_share_an_answer_or_pass_the_gate_unless_they_ask_the_same(kind: str) -> None:
    asked = [q for q in twins().queries if twins().topics[q.id] == kind and q.tenant == "norvik"]
    assert len(asked) == 6 * 2 * 2 * 3  # pairs, things, settings, wordings
    passed = 0
    for a, b in itertools.combinations(asked, 2):
        alike = twins().subjects[a.id] == twins().subjects[b.id]
        if not alike:
            assert not same(a.text, b.text), (a.text, b.text)
            assert not claims.equals(truth(a.id), truth(b.id))
        passed += same(a.text, b.text)
    assert passed == 72  # and all wordings of one question pass


def test_twins_differ_in_their_values_at_every_tenant() -> None:
    by_attribute: dict[tuple[str, str], list[str]] = {}
    for (doc_id, _), fact in twins().facts.items():
        by_attribute.setdefault((doc_id.partition("-")[0], str(fact["entity"])), []).append(str(fact["value"]))
    for (tenant, entity), values in by_attribute.items():
        assert tenant in ("norvik", "halden")
        if tenant == "norvik":
            assert not set(values) & set(by_attribute["halden", entity])
