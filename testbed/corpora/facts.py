"""A corpus with a ledger of facts: what every revision of every document states, and what is true at any moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from testbed.core import digest
from testbed.core.errors import InvalidInput
from testbed.core.types import Claim, Doc, Gold, Query, Revision
from testbed.corpora import forms

Facts = Mapping[tuple[str, int], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FactCorpus:
    """A :class:`~testbed.core.ports.Corpus` whose truth is composed from facts.

    ``facts`` by (document id, version). A record's: ``entity``, ``attribute``, ``form``, ``value``, ``unit`` (what the
    value carries with it) and ``convention`` (the id of the document that gives the meaning, "" for none). A
    convention's: ``unit`` for all of its entries, or ``meanings`` by entry. Any: ``valid_from``, a date.
    ``records`` is the record document that
    answers a query, by query id.
    """

    name: str
    digest: str
    docs: tuple[Doc, ...]
    revisions: tuple[Revision, ...]
    queries: tuple[Query, ...]
    topics: Mapping[str, str]
    subjects: Mapping[str, str]
    glossary: Mapping[str, Mapping[str, str]]
    canaries: Mapping[str, str]
    lexicon: Mapping[str, Any]
    facts: Facts
    records: Mapping[str, str]

    def gold(self, op: int, query: Query, versions: Mapping[str, int]) -> Gold:
        """The truth for one ask when the documents stand at ``versions``; no claim once the record is deleted."""
        record = self.records.get(query.id)
        if record is None:
            raise InvalidInput(f"query={query.id!r} is not a question of data set {self.name!r}")
        subject = self.subjects[query.id]
        if record not in versions:
            return Gold(op, query.id, query.tenant, subject, {})
        fact = self._fact(record, versions[record])
        claim = compose(fact, self._meaning(fact, versions))
        accept = forms.accepted(claim.value, claim.unit, str(fact["form"]))
        return Gold(op, query.id, query.tenant, subject, {record: 1}, accept, claim)

    def _meaning(self, fact: Mapping[str, Any], versions: Mapping[str, int]) -> Mapping[str, Any]:
        convention = str(fact.get("convention", ""))
        if not convention or convention not in versions:
            return {}
        return self._fact(convention, versions[convention])

    def _fact(self, doc_id: str, version: int) -> Mapping[str, Any]:
        try:
            return self.facts[doc_id, version]
        except KeyError:
            raise InvalidInput(f"no facts of document {doc_id!r} version={version} in data set {self.name!r}") from None


def fact_corpus(
    name: str, docs: Iterable[Doc], revisions: tuple[Revision, ...], queries: Iterable[Query], *, facts: Facts,
    records: Mapping[str, str], topics: Mapping[str, str], subjects: Mapping[str, str],
    glossary: Mapping[str, Mapping[str, str]], canaries: Mapping[str, str], lexicon: Mapping[str, Any],
) -> FactCorpus:  # fmt: skip
    """Put in order and digested."""
    ordered, asked = tuple(sorted(docs, key=lambda d: d.id)), tuple(sorted(queries, key=lambda q: q.id))
    extra = {
        "facts": [[doc_id, version, dict(fact)] for (doc_id, version), fact in sorted(facts.items())],
        "records": dict(records), "topics": dict(topics), "subjects": dict(subjects), "lexicon": dict(lexicon),
        "canaries": dict(canaries), "glossary": {t: dict(g) for t, g in glossary.items()},
    }  # fmt: skip
    return FactCorpus(
        name, content_digest(ordered, revisions, asked, extra), ordered, revisions, asked, topics, subjects, glossary,
        canaries, lexicon, facts, records,
    )  # fmt: skip


def compose(fact: Mapping[str, Any], meaning: Mapping[str, Any]) -> Claim:
    """The claim that a record makes under a convention; the unit is "" where the convention does not say."""
    value = str(fact["value"])
    unit = str(fact.get("unit", ""))
    if fact.get("convention"):
        unit = str(meaning.get("unit", "") or meaning.get("meanings", {}).get(value, ""))
    return Claim(str(fact["entity"]), str(fact["attribute"]), value, unit)


def content_digest(
    docs: tuple[Doc, ...], revisions: tuple[Revision, ...], queries: tuple[Query, ...], extra: Mapping[str, Any]
) -> str:
    """Digest over everything that can change a run: texts, order of revisions, questions, and ``extra`` (truth)."""
    rows = [[d.id, d.version, d.tenant, d.kind, list(d.refs), d.title, d.text] for d in docs]
    later = [[r.doc.id, r.doc.version, r.doc.text, list(r.doc.refs), r.drift] for r in revisions]
    asked = [[q.id, q.tenant, q.text] for q in queries]
    return digest.of_json({"docs": rows, "revisions": later, "queries": asked, "extra": dict(extra)})
