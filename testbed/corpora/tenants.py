"""The tenants form: documents.jsonl (tenant, doc_id, title, text), queries.jsonl (tenant, question, answer, unique).

It gives no relevance: a tenant's documents that state the answer are the relevant ones.
"""

from __future__ import annotations

import re
from pathlib import Path

from testbed.core.errors import InvalidInput
from testbed.core.types import Doc, Query
from testbed.corpora import rows
from testbed.corpora.answers import AnswerCorpus, answer_corpus
from testbed.corpora.flat import subject_of, titled

_PAGE_STATE = re.compile(r"^Page state of \d{4}-\d\d-\d\d\.\s*\n+", re.MULTILINE)


def read_tenants(folder: Path, name: str) -> AnswerCorpus:
    """A multi-tenant set; questions whose answer no document of their tenant states are left out.

    Raises
    ------
    InvalidInput : also when no question at all can be answered from the documents.
    """
    docs: dict[str, Doc] = {}
    for row in rows.read_jsonl(folder / "documents.jsonl"):
        doc_id, tenant = rows.name(row, "doc_id"), rows.name(row, "tenant")
        if doc_id in docs:
            raise InvalidInput(f"{row[0]}: document id {doc_id!r} occurs twice")
        title = rows.text(row, "title", default="")
        docs[doc_id] = Doc(doc_id, titled(title, undated(rows.text(row, "text"))), tenant, title=title)
    by_tenant: dict[str, list[Doc]] = {}
    for doc in docs.values():
        by_tenant.setdefault(doc.tenant, []).append(doc)
    queries: dict[str, Query] = {}
    relevant: dict[str, dict[str, int]] = {}
    accept: dict[str, dict[int, tuple[str, ...]]] = {}
    for row in rows.read_jsonl(folder / "queries.jsonl"):
        query = Query(rows.name(row, "query_id"), rows.text(row, "question"), rows.name(row, "tenant"))
        if query.id in accept:
            raise InvalidInput(f"{row[0]}: query id {query.id!r} occurs twice")
        if query.tenant not in by_tenant:
            raise InvalidInput(f"{row[0]}: tenant {query.tenant!r} has no documents")
        answer = rows.text(row, "answer")
        accept[query.id] = {1: (answer,)}
        stating = {doc.id: 1 for doc in by_tenant[query.tenant] if states(doc.text, answer)}
        if stating:
            queries[query.id], relevant[query.id] = query, stating
    if not queries:
        raise InvalidInput(f"{folder / 'queries.jsonl'}: no answer occurs in a document of its tenant")
    subjects = {q.id: subject_of(q.text) for q in queries.values()}
    return answer_corpus(
        name, [*docs.values()], [*queries.values()], relevant, {q: accept[q] for q in queries}, subjects=subjects
    )


def undated(text: str) -> str:
    """A page without the line that says of which day it is: it would give the revision away."""
    return _PAGE_STATE.sub("", text)


def states(text: str, answer: str) -> bool:
    """Does the answer stand in the text by itself? ``8`` does not stand in ``8.1`` or ``18``."""
    return re.search(rf"(?<![\w.-]){re.escape(answer)}(?![\w-]|\.\w)", text) is not None
