"""The flat form: corpus.jsonl (doc_id, title, text), queries.jsonl (query_id, question, answers), qrels.tsv."""

from __future__ import annotations

from pathlib import Path

from testbed.core import digest
from testbed.core.errors import InvalidInput
from testbed.core.types import Doc, Query
from testbed.corpora import rows
from testbed.corpora.answers import AnswerCorpus, answer_corpus


def read_flat(folder: Path, name: str) -> AnswerCorpus:
    """A retrieval set without tenants. Titles are put before the texts, as BEIR's own readers do."""
    docs: dict[str, Doc] = {}
    for row in rows.read_jsonl(folder / "corpus.jsonl"):
        doc_id = rows.name(row, "doc_id")
        _new(row, "document", doc_id, docs)
        title = rows.text(row, "title", default="")
        docs[doc_id] = Doc(doc_id, titled(title, rows.text(row, "text")), title=title)
    queries: dict[str, Query] = {}
    accept: dict[str, dict[int, tuple[str, ...]]] = {}
    for row in rows.read_jsonl(folder / "queries.jsonl"):
        query_id = rows.name(row, "query_id")
        _new(row, "query", query_id, queries)
        queries[query_id] = Query(query_id, rows.text(row, "question"))
        accept[query_id] = {1: rows.texts(row, "answers")}
    relevant = rows.read_qrels(folder / "qrels.tsv", docs, queries)
    asked = [q for q in queries.values() if q.id in relevant]
    subjects = {q.id: subject_of(q.text) for q in asked}
    return answer_corpus(name, [*docs.values()], asked, relevant, accept, subjects=subjects)


def titled(title: str, text: str) -> str:
    """The text under its title; unless its first line has it already."""
    first = text.lstrip().partition("\n")[0]
    return text if not title.strip() or title.casefold() in first.casefold() else f"{title}\n{text}"


def subject_of(question: str) -> str:
    """Questions in the same words, case and spacing apart, are one subject."""
    return digest.of_text(" ".join(question.casefold().split()))


def _new(row: rows.Row, what: str, key: str, known: dict[str, Doc] | dict[str, Query]) -> None:
    if key in known:
        raise InvalidInput(f"{row[0]}: {what} id {key!r} occurs twice")
