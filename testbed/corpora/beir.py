"""The BEIR layout: corpus.jsonl, queries.jsonl, qrels/test.tsv; what BEIR lacks stands in ``metadata``.

A document's ``metadata`` may hold ``tenant``, ``version``, ``kind``, ``refs``, ``valid_from`` and ``facts``; a query's
``tenant``, ``subject``, ``topic`` and ``answers``. Two files more, both optional: ``revisions.jsonl`` (later states, in
the order in which they happen, with ``drift`` in ``metadata``) and ``ledger.json`` (lexicon, canaries, glossary).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.core.ports import Corpus
from testbed.core.types import Doc, Query, Revision
from testbed.corpora import rows, sums
from testbed.corpora.answers import answer_corpus
from testbed.corpora.facts import FactCorpus, fact_corpus
from testbed.corpora.flat import subject_of, titled

CORPUS, REVISIONS, QUERIES, QRELS, LEDGER = (
    "corpus.jsonl", "revisions.jsonl", "queries.jsonl", "qrels/test.tsv", "ledger.json",
)  # fmt: skip

_Facts = dict[tuple[str, int], Mapping[str, Any]]


def files_of(corpus: FactCorpus) -> dict[str, bytes]:
    """A ledger in the BEIR layout: content by file name. Reading it back gives an equal corpus."""
    docs = (_doc_row(d, corpus.facts.get((d.id, d.version), {})) for d in corpus.docs)
    later = (_doc_row(r.doc, corpus.facts.get((r.doc.id, r.doc.version), {}), r.drift) for r in corpus.revisions)
    asked = (
        {"_id": q.id, "text": q.text, "metadata": {
            "tenant": q.tenant, "subject": corpus.subjects[q.id], "topic": corpus.topics.get(q.id, "")}}
        for q in corpus.queries
    )  # fmt: skip
    qrels = "".join(f"{q.id}\t{corpus.records[q.id]}\t1\n" for q in corpus.queries)
    about = {
        "name": corpus.name, "lexicon": corpus.lexicon, "canaries": corpus.canaries, "glossary": corpus.glossary,
    }  # fmt: skip
    return {
        CORPUS: _jsonl(docs),
        REVISIONS: _jsonl(later),
        QUERIES: _jsonl(asked),
        QRELS: f"query-id\tcorpus-id\tscore\n{qrels}".encode(),
        LEDGER: (json.dumps(about, sort_keys=True, ensure_ascii=False, indent=1) + "\n").encode(),
    }


def write_beir(corpus: FactCorpus, folder: Path) -> dict[str, bytes]:
    """Write a ledger to a folder, its SHA256SUMS last; what is written, by file name.

    Raises
    ------
    InvalidInput : the folder cannot be written.
    """
    files = files_of(corpus)
    try:
        for name, data in {**files, sums.FILE: sums.sums_of(files).encode()}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_name(f".{path.name}.half")
            half.write_bytes(data)
            half.replace(path)
    except OSError as e:
        raise InvalidInput(f"{folder} cannot be written: {e.strerror} ({e.filename})") from None
    return files


def read_beir(folder: Path, name: str) -> Corpus:
    """Any set in the BEIR layout; with ``ledger.json``, one whose answers are checked claim by claim."""
    docs: dict[str, Doc] = {}
    facts: _Facts = {}
    for row in rows.read_jsonl(folder / CORPUS):
        doc = _doc(row, facts)
        if doc.id in docs:
            raise InvalidInput(f"{row[0]}: document id {doc.id!r} occurs twice; later states go to {REVISIONS}")
        docs[doc.id] = doc
    _check_refs(folder, docs)
    revisions = _revisions(folder / REVISIONS, docs, facts)
    queries, metas = _queries(folder / QUERIES)
    relevant = rows.read_qrels(folder / QRELS, docs, queries)
    asked = [q for q in queries.values() if q.id in relevant]
    subjects = {q.id: rows.name(metas[q.id], "subject", default="") or subject_of(q.text) for q in asked}
    topics = {q.id: rows.name(metas[q.id], "topic", default="") for q in asked}
    if (folder / LEDGER).exists():
        return _with_facts(folder, docs, revisions, asked, topics, subjects, relevant, facts)
    accept = {q.id: _accept(metas[q.id]) for q in asked}
    return answer_corpus(
        name, [*docs.values()], asked, relevant, accept, subjects=subjects, revisions=revisions,
        topics={q: t for q, t in topics.items() if t},
    )  # fmt: skip


def _with_facts(
    folder: Path, docs: dict[str, Doc], revisions: tuple[Revision, ...], queries: list[Query],
    topics: Mapping[str, str], subjects: Mapping[str, str], relevant: Mapping[str, Mapping[str, int]], facts: _Facts,
) -> FactCorpus:  # fmt: skip
    about = (str(folder / LEDGER), rows.read_json(folder / LEDGER))
    name = rows.name(about, "name")
    records = {q: next(iter(grades)) for q, grades in relevant.items()}
    for query_id, record in sorted(records.items()):
        if "entity" not in facts.get((record, docs[record].version), {}):
            raise InvalidInput(f"{folder / QRELS}: query {query_id!r} is answered by {record!r}, which states no fact")
    return fact_corpus(
        name, docs.values(), revisions, queries, facts=facts, records=records, topics=topics,
        subjects=subjects, glossary=rows.mapping(about, "glossary"), canaries=rows.mapping(about, "canaries"),
        lexicon=rows.mapping(about, "lexicon"),
    )  # fmt: skip


def _doc(row: rows.Row, facts: _Facts) -> Doc:
    where, _ = row
    meta = (f"{where} (metadata)", rows.mapping(row, "metadata"))
    title = rows.text(row, "title", default="")
    doc = Doc(
        rows.name(row, "_id"), titled(title, rows.text(row, "text")), rows.name(meta, "tenant", default=""),
        rows.integer(meta, "version", 1), title, rows.name(meta, "kind", default=""), rows.texts(meta, "refs"),
    )  # fmt: skip
    fact = rows.mapping(meta, "facts")
    if fact:
        facts[doc.id, doc.version] = fact
    return doc


def _check_refs(folder: Path, docs: Mapping[str, Doc]) -> None:
    for doc in docs.values():
        for ref in doc.refs:
            if ref not in docs:
                raise InvalidInput(f"{folder / CORPUS}: document {doc.id!r} refers to {ref!r}, which is not there")


def _revisions(path: Path, docs: Mapping[str, Doc], facts: _Facts) -> tuple[Revision, ...]:
    if not path.exists():
        return ()
    current = {doc.id: doc.version for doc in docs.values()}
    found = []
    for row in rows.read_jsonl(path):
        doc = _doc(row, facts)
        if doc.id not in current:
            raise InvalidInput(f"{row[0]}: revision of {doc.id!r}, which is not in {CORPUS}")
        if doc.version <= current[doc.id]:
            raise InvalidInput(f"{row[0]}: version={doc.version} of {doc.id!r} must be > {current[doc.id]}")
        current[doc.id] = doc.version
        found.append(Revision(doc, rows.name((row[0], rows.mapping(row, "metadata")), "drift", default="value")))
    return tuple(found)


def _queries(path: Path) -> tuple[dict[str, Query], dict[str, rows.Row]]:
    queries: dict[str, Query] = {}
    metas: dict[str, rows.Row] = {}
    for row in rows.read_jsonl(path):
        query_id = rows.name(row, "_id")
        if query_id in queries:
            raise InvalidInput(f"{row[0]}: query id {query_id!r} occurs twice")
        meta = (f"{row[0]} (metadata)", rows.mapping(row, "metadata"))
        queries[query_id] = Query(query_id, rows.text(row, "text"), rows.name(meta, "tenant", default=""))
        metas[query_id] = meta
    return queries, metas


def _accept(meta: rows.Row) -> dict[int, tuple[str, ...]]:
    """``answers``: a list, or lists by version of the document."""
    answers = meta[1].get("answers")
    if not isinstance(answers, dict):
        return {1: rows.texts(meta, "answers")}
    if not all(str(v).isdecimal() for v in answers):
        raise InvalidInput(f"{meta[0]}: 'answers' must be a list, or lists by document version (1, 2, ...)")
    return {int(v): rows.texts((meta[0], answers), v) for v in answers}


def _doc_row(doc: Doc, fact: Mapping[str, Any], drift: str = "") -> dict[str, Any]:
    meta = {
        "tenant": doc.tenant, "version": doc.version, "kind": doc.kind, "refs": list(doc.refs),
        "valid_from": fact.get("valid_from", ""), "facts": dict(fact),
    }  # fmt: skip
    return {"_id": doc.id, "title": doc.title, "text": doc.text, "metadata": meta | ({"drift": drift} if drift else {})}


def _jsonl(found: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n" for row in found).encode()
