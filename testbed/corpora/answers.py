"""A corpus without a ledger: relevance per question, and strings that count as right answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.core.types import Doc, Gold, Query, Revision
from testbed.corpora.facts import content_digest

Accepted = Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class AnswerCorpus:
    """A :class:`~testbed.core.ports.Corpus` whose truth is what its files say.

    ``relevant`` grades by query id. ``accept`` by query id: right answers by the version of the query's first relevant
    document from which on they hold.
    """

    name: str
    docs: tuple[Doc, ...]
    revisions: tuple[Revision, ...]
    queries: tuple[Query, ...]
    topics: Mapping[str, str]
    subjects: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]
    accept: Mapping[str, Accepted]
    digest: str
    glossary: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    canaries: Mapping[str, str] = field(default_factory=dict)
    lexicon: Mapping[str, Any] | None = None

    def gold(self, op: int, query: Query, versions: Mapping[str, int]) -> Gold:
        """The truth for one ask; nothing is relevant or right once the documents are deleted, or before they exist."""
        if query.id not in self.subjects:
            raise InvalidInput(f"query={query.id!r} is not a question of data set {self.name!r}")
        grades = self.relevant.get(query.id, {})
        live = {doc_id: grade for doc_id, grade in grades.items() if doc_id in versions}
        home = next(iter(grades), "")
        accept = _at(self.accept.get(query.id, {}), versions[home]) if home in versions else ()
        return Gold(op, query.id, query.tenant, self.subjects[query.id], live, accept)


def answer_corpus(
    name: str,
    docs: list[Doc],
    queries: list[Query],
    relevant: Mapping[str, Mapping[str, int]],
    accept: Mapping[str, Accepted],
    *,
    subjects: Mapping[str, str],
    revisions: tuple[Revision, ...] = (),
    topics: Mapping[str, str] | None = None,
    canaries: Mapping[str, str] | None = None,
    glossary: Mapping[str, Mapping[str, str]] | None = None,
) -> AnswerCorpus:
    """Put in order and digested."""
    ordered, asked = tuple(sorted(docs, key=lambda d: d.id)), tuple(sorted(queries, key=lambda q: q.id))
    topics, canaries, glossary = topics or {}, canaries or {}, glossary or {}
    extra = {
        "relevant": {q: dict(grades) for q, grades in relevant.items()},
        "accept": {q: [[v, list(a)] for v, a in sorted(by.items())] for q, by in accept.items()},
        "subjects": dict(subjects), "topics": dict(topics), "canaries": dict(canaries),
        "glossary": {t: dict(g) for t, g in glossary.items()},
    }  # fmt: skip
    digest = content_digest(ordered, revisions, asked, extra)
    return AnswerCorpus(name, ordered, revisions, asked, topics, subjects, relevant, accept, digest, glossary, canaries)


def _at(accept: Accepted, version: int) -> tuple[str, ...]:
    """What holds at a version: the answers of the last version up to it for which any are given."""
    known = [v for v in accept if v <= version]
    return accept[max(known)] if known else ()
