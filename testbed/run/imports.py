"""Spans and a corpus from files, in the shape in which they are judged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.corpora import rows
from testbed.corpora.load import load
from testbed.record import spans
from testbed.record.spans import Span


def read_spans(paths: Sequence[Path]) -> list[Span]:
    """The spans of all files."""
    return [span for path in paths for span in spans.read(path)]


def read_corpus(spec: str, qrels: str = "") -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Texts by document, and relevance by question text. ``qrels``: a file to use instead of the corpus's own."""
    corpus = load(spec)
    texts = {doc.id: f"{doc.title} {doc.text}".strip() for doc in corpus.docs}
    questions = {query.id: query for query in corpus.queries}
    own = rows.read_qrels(Path(qrels), texts, questions) if qrels else None
    versions = {doc.id: doc.version for doc in corpus.docs}
    relevant = {}
    for query in corpus.queries:
        graded = own.get(query.id, {}) if own is not None else corpus.gold(0, query, versions).relevant
        relevant[query.text] = dict(graded)
    return texts, relevant
