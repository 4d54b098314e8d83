from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.core.types import Claim, Doc, Query, Revision
from testbed.corpora.facts import FactCorpus, fact_corpus
from testbed.corpora.ledger import build_ledger
from testbed.metrics.claims import equals

ROOT = Path(__file__).resolve().parents[3]
DRIFTS = {"unit", "currency", "enum", "composite", "policy-date", "definition"}


@cache
def ledger() -> FactCorpus:
    return build_ledger()


def first_versions(corpus: FactCorpus) -> dict[str, int]:
    return {d.id: 1 for d in corpus.docs}


@cache
def states() -> dict[str, list[Doc]]:
    found: dict[str, list[Doc]] = defaultdict(list)
    for doc in (*ledger().docs, *(r.doc for r in ledger().revisions)):
        found[doc.id].append(doc)
    return found


def truths(query: Query) -> Iterator[Claim]:
    """The true claims of a query over all states of the documents that it depends on."""
    for record in states()[ledger().records[query.id]]:
        for chosen in itertools.product(*(states()[ref] for ref in record.refs)):
            versions = {record.id: record.version, **{d.id: d.version for d in chosen}}
            claim = ledger().gold(0, query, versions).claim
            assert claim is not None
            yield claim


def first_wordings(corpus: FactCorpus) -> list[Query]:
    return [q for q in corpus.queries if q.id.endswith("-q0")]


def test_every_tenant_has_at_least_150_documents_and_60_subjects() -> None:
    docs = Counter(d.tenant for d in ledger().docs)
    subjects = {t: {ledger().subjects[q.id] for q in ledger().queries if q.tenant == t} for t in docs}
    assert len(docs) == 4
    assert min(docs.values()) >= 150
    assert {len(s) for s in subjects.values()} == {72}


def test_all_tenants_ask_word_identical_questions() -> None:
    texts: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for q in ledger().queries:
        texts[q.tenant].add((ledger().subjects[q.id], q.text))
    first, *others = texts.values()
    assert len(first) == 72 * 3
    assert all(other == first for other in others)


def test_a_canary_stands_in_every_document_of_its_tenant_and_in_no_other() -> None:
    for doc in (*ledger().docs, *(r.doc for r in ledger().revisions)):
        holding = [t for t, canary in ledger().canaries.items() if canary in doc.text]
        assert holding == [doc.tenant]


def test_no_two_tenants_ever_share_an_answer() -> None:
    claims: dict[str, dict[str, set[Claim]]] = defaultdict(dict)
    for q in first_wordings(ledger()):
        claims[ledger().subjects[q.id]][q.tenant] = set(truths(q))
    for by_tenant in claims.values():
        for mine, theirs in itertools.combinations(by_tenant.values(), 2):
            assert not any(equals(a, b) for a in mine for b in theirs)


def test_every_state_has_a_truth_of_its_own() -> None:
    for q in first_wordings(ledger()):
        claims = list(truths(q))
        assert not any(equals(a, b) for a, b in itertools.combinations(claims, 2))


def test_a_convention_gives_every_claim_a_meaning() -> None:
    for q in first_wordings(ledger()):
        if ledger().topics[q.id] in DRIFTS:
            assert all(claim.unit for claim in truths(q))


def test_drift_leaves_record_and_question_as_they_were_and_changes_the_truth() -> None:
    kinds: Counter[tuple[str, str]] = Counter()
    depending = defaultdict(list)
    for q in first_wordings(ledger()):
        for ref in next(d for d in ledger().docs if d.id == ledger().records[q.id]).refs:
            depending[ref].append(q)
    for revision in ledger().revisions:
        if revision.drift == "value":
            assert revision.doc.kind == "record"
            continue
        assert revision.doc.kind == "convention"
        kinds[revision.doc.tenant, revision.drift] += 1
        before = first_versions(ledger()) | {revision.doc.id: revision.doc.version - 1}
        after = before | {revision.doc.id: revision.doc.version}
        assert depending[revision.doc.id]
        for q in depending[revision.doc.id]:
            assert ledger().topics[q.id] == revision.drift
            assert ledger().gold(0, q, before).claim != ledger().gold(0, q, after).claim
    assert set(kinds.values()) == {6}
    assert {drift for _, drift in kinds} == DRIFTS


def test_topics_of_value_are_those_whose_record_is_rewritten() -> None:
    rewritten = {r.doc.id for r in ledger().revisions if r.drift == "value"}
    assert {ledger().records[q] for q, topic in ledger().topics.items() if topic == "value"} == rewritten


def test_versions_of_a_document_rise_one_by_one() -> None:
    seen = first_versions(ledger())
    for revision in ledger().revisions:
        seen[revision.doc.id] += 1
        assert revision.doc.version == seen[revision.doc.id]


def test_references_lead_to_documents_of_the_same_tenant() -> None:
    tenant = {d.id: d.tenant for d in ledger().docs}
    for doc in ledger().docs:
        assert all(tenant[ref] == doc.tenant for ref in doc.refs)


def test_most_records_use_the_code_name_only() -> None:
    records = [d for d in ledger().docs if (d.id, 1) in ledger().facts and d.kind == "record"]
    generic = [d for d in records if ledger().facts[d.id, 1]["entity"] in d.text]
    assert 0 < len(generic) < 0.15 * len(records)


def test_another_seed_gives_another_ledger_and_the_same_seed_the_same() -> None:
    assert build_ledger(8).digest != ledger().digest
    assert build_ledger(7) == ledger()


def test_fewer_tenants_are_the_first_of_them() -> None:
    two = build_ledger(7, n_tenants=2)
    assert set(two.docs) <= set(ledger().docs)
    assert len({d.tenant for d in two.docs}) == 2


@pytest.mark.parametrize("n", [0, 5, -1])
def test_a_number_of_tenants_out_of_range_is_refused(n: int) -> None:
    with pytest.raises(InvalidInput, match=rf"n_tenants={n} must be 1 to 4"):
        build_ledger(7, n_tenants=n)


def test_the_ledger_does_not_depend_on_the_hash_seed() -> None:
    code = "from testbed.corpora.ledger import build_ledger; print(build_ledger().digest)"
    for hash_seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == ledger().digest


# --- truth, by hand


def by_hand() -> FactCorpus:
    record = Doc("r", "Heron has the request timeout 30.", "a", 1, "", "record", ("c",))
    convention = Doc("c", "Every request timeout is in milliseconds.", "a", 1, "", "convention")
    later = Doc("c", "Every request timeout is in seconds.", "a", 2, "", "convention")
    fact = {"entity": "payment gateway", "attribute": "request timeout", "form": "number", "value": "30", "unit": ""}
    return fact_corpus(
        "hand", [record, convention], (Revision(later, "unit"),), [Query("q", "How long?", "a")],
        facts={("r", 1): fact | {"convention": "c"}, ("c", 1): {"unit": "ms"}, ("c", 2): {"unit": "s"}},
        records={"q": "r"}, topics={"q": "unit"}, subjects={"q": "timeout"}, glossary={}, canaries={}, lexicon={},
    )  # fmt: skip


def test_truth_follows_the_convention() -> None:
    corpus = by_hand()
    before = corpus.gold(3, corpus.queries[0], {"r": 1, "c": 1})
    after = corpus.gold(9, corpus.queries[0], {"r": 1, "c": 2})
    assert before.claim == Claim("payment gateway", "request timeout", "30", "ms")
    assert after.claim == Claim("payment gateway", "request timeout", "30", "s")
    assert (after.op, after.query, after.tenant, after.subject) == (9, "q", "a", "timeout")
    assert after.relevant == {"r": 1}
    assert after.accept == ("30 seconds", "30 s")


def test_without_its_convention_an_entry_has_no_meaning() -> None:
    corpus = by_hand()
    assert corpus.gold(0, corpus.queries[0], {"r": 1}).claim == Claim("payment gateway", "request timeout", "30", "")


def test_nothing_is_true_once_the_record_is_deleted() -> None:
    corpus = by_hand()
    gold = corpus.gold(0, corpus.queries[0], {"c": 1})
    assert (gold.claim, gold.accept, gold.relevant) == (None, (), {})


def test_a_foreign_question_and_an_unknown_version_are_refused() -> None:
    corpus = by_hand()
    with pytest.raises(InvalidInput, match="'nope' is not a question of data set 'hand'"):
        corpus.gold(0, Query("nope", "?"), {"r": 1})
    with pytest.raises(InvalidInput, match="no facts of document 'r' version=4"):
        corpus.gold(0, corpus.queries[0], {"r": 4})


def test_the_digest_notices_text_order_and_truth() -> None:
    corpus = ledger()
    same = {
        "facts": corpus.facts, "records": corpus.records, "topics": corpus.topics, "subjects": corpus.subjects,
        "glossary": corpus.glossary, "canaries": corpus.canaries, "lexicon": corpus.lexicon,
    }  # fmt: skip
    again = fact_corpus("ledger", reversed(corpus.docs), corpus.revisions, corpus.queries, **same)  # type: ignore[arg-type]
    assert again.digest == corpus.digest
    turned = fact_corpus("ledger", corpus.docs, corpus.revisions[::-1], corpus.queries, **same)  # type: ignore[arg-type]
    assert turned.digest != corpus.digest
    key = min(corpus.facts)
    other = same | {"facts": {**corpus.facts, key: {**corpus.facts[key], "unit": "changed"}}}
    untrue = fact_corpus("ledger", corpus.docs, corpus.revisions, corpus.queries, **other)  # type: ignore[arg-type]
    assert untrue.digest != corpus.digest
