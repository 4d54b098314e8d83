from __future__ import annotations

import itertools
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.types import Doc, Query, Upgrade
from testbed.corpora.beir import files_of
from testbed.corpora.facts import FactCorpus
from testbed.corpora.ledger import build_ledger
from testbed.metrics.claims import equals, extract, supported
from testbed.workloads.stream import Stream

SEEDS = st.integers(0, 2**32)
KINDS = ("unit", "currency", "enum", "composite", "policy-date", "definition", "value", "*", "no-such")


@cache
def ledger() -> FactCorpus:
    return build_ledger()


@cache
def texts() -> dict[tuple[str, int], Doc]:
    return {(d.id, d.version): d for d in (*ledger().docs, *(r.doc for r in ledger().revisions))}


def versions_after(corpus: FactCorpus, n_revisions: int) -> dict[str, int]:
    versions = {d.id: 1 for d in corpus.docs}
    for revision in corpus.revisions[:n_revisions]:
        versions[revision.doc.id] = revision.doc.version
    return versions


@settings(max_examples=8, deadline=None)
@given(SEEDS)
def test_any_seed_gives_a_ledger_whose_pages_say_what_its_facts_say(seed: int) -> None:
    corpus = build_ledger(seed, n_tenants=2)
    docs = {(d.id, d.version): d for d in (*corpus.docs, *(r.doc for r in corpus.revisions))}
    assert len(set(corpus.canaries.values())) == 2
    assert len({d.id for d in corpus.docs}) == len(corpus.docs)
    versions = versions_after(corpus, len(corpus.revisions))
    true = {}
    for query in (q for q in corpus.queries if q.id.endswith("q0")):
        record = docs[corpus.records[query.id], versions[corpus.records[query.id]]]
        claim = corpus.gold(0, query, versions).claim
        passages = [record, *(docs[ref, versions[ref]] for ref in record.refs)]
        assert extract(" ".join(d.text for d in passages), corpus.lexicon) == (claim,)
        assert claim is not None
        others = true.setdefault(corpus.subjects[query.id], [])
        assert not any(equals(claim, other) for other in others)
        others.append(claim)


@settings(max_examples=3, deadline=None)
@given(SEEDS)
def test_any_seed_gives_the_same_bytes_twice(seed: int) -> None:
    assert files_of(build_ledger(seed, n_tenants=1)) == files_of(build_ledger(seed, n_tenants=1))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_at_any_moment_exactly_the_current_passages_support_the_truth(data: st.DataObject) -> None:
    corpus = ledger()
    query = data.draw(st.sampled_from(corpus.queries))
    now = versions_after(corpus, data.draw(st.integers(0, len(corpus.revisions))))
    then = versions_after(corpus, data.draw(st.integers(0, len(corpus.revisions))))
    truth = corpus.gold(0, query, now).claim
    assert truth is not None
    record = texts()[corpus.records[query.id], then[corpus.records[query.id]]]
    served = [record, *(texts()[ref, then[ref]] for ref in record.refs)]
    claims = [c for doc in served for c in extract(doc.text, corpus.lexicon)]
    is_current = all(now[doc.id] == then[doc.id] for doc in served)
    assert supported(truth, claims) is is_current


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    n_asks=st.integers(1, 60),
    edits=st.lists(st.sampled_from(KINDS), max_size=3, unique=True).map(tuple),
    about=st.lists(st.sampled_from(KINDS), max_size=2, unique=True).map(tuple),
    max_edits=st.none() | st.integers(0, 30),
    upgrade=st.sampled_from(("", "lsa")),
    upgrade_at=st.floats(0, 1),
    zipf_s=st.floats(0, 2),
)
def test_any_stream_is_well_formed_and_repeatable(
    seed: int, n_asks: int, edits: tuple[str, ...], about: tuple[str, ...], max_edits: int | None, upgrade: str,
    upgrade_at: float, zipf_s: float,
) -> None:  # fmt: skip
    workload = Stream(edits, max_edits, about, upgrade, upgrade_at, zipf_s)
    ops = workload.ops(ledger(), seed, n_asks)
    assert ops == workload.ops(ledger(), seed, n_asks)
    assert [op.index for op in ops] == list(range(len(ops)))
    assert [op.do for op in ops].count("ask") == n_asks
    assert [op.do for op in ops].count("upgrade") == (upgrade != "")
    assert all(a.at_s < b.at_s for a, b in itertools.pairwise(ops))
    known = {q.id: q.text for q in ledger().queries}
    versions = {d.id: d.version for d in ledger().docs}
    n_edits = 0
    for op in ops[1:]:
        if isinstance(op.item, Query):
            assert known[op.item.id] == op.item.text
        elif isinstance(op.item, Doc):
            assert op.do == "upsert"
            assert op.item.version == versions[op.item.id] + 1
            versions[op.item.id] += 1
            n_edits += 1
        else:
            assert isinstance(op.item, Upgrade)
    assert max_edits is None or n_edits <= max_edits
    assert bool(n_edits) == (bool(edits) and max_edits != 0)
