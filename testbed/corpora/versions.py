"""The versions form: documents.jsonl (doc_id, version, title, text), queries.jsonl (question, paraphrases, answers).

``version`` is a date or any other name that sorts by age; the first state of all pages is what is loaded, later
states are revisions. Pages are cut at their headings, so that an edit touches the sections that it changed. A query's
truth follows the section that states its answer most often over the versions. Questions that nothing answers at first
are left out: there would be no right answer to tell a stale one from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.core.errors import InvalidInput
from testbed.core.types import Doc, Query, Revision
from testbed.corpora import rows
from testbed.corpora.answers import AnswerCorpus, answer_corpus
from testbed.corpora.chunk import sections
from testbed.corpora.flat import subject_of
from testbed.corpora.tenants import states, undated

REMOVED = "removed"
_History = dict[str, dict[int, str]]  # texts by section id and version
_Answers = dict[int, tuple[str, ...]]  # right answers by version


def read_versions(folder: Path, name: str) -> AnswerCorpus:
    """A set of pages at several dates, with answers per date.

    Raises
    ------
    InvalidInput : also when no question can be answered from the first state of its page.
    """
    pages, names = _pages(folder / "documents.jsonl")
    number = {version: i for i, version in enumerate(names, start=1)}
    history = _history(pages, number)
    first = {s for s, texts in history.items() if 1 in texts}
    docs, revisions = _docs(history, len(names))
    queries: dict[str, Query] = {}
    relevant: dict[str, dict[str, int]] = {}
    accept: dict[str, _Answers] = {}
    subjects: dict[str, str] = {}
    topics: dict[str, str] = {}
    for row in rows.read_jsonl(folder / "queries.jsonl"):
        page, answers = _answers(row, pages, number)
        home = _home({s: h for s, h in history.items() if s.partition("#")[0] == page}, answers)
        if home is None or home not in first or not _stated(history[home][1], answers.get(1, ())):
            continue
        question = rows.text(row, "question")
        for n, wording in enumerate((question, *rows.texts(row, "paraphrases"))):
            query = Query(f"{rows.name(row, 'query_id')}-q{n}", wording)
            if query.id in queries:
                raise InvalidInput(f"{row[0]}: query id {row[1]['query_id']!r} occurs twice")
            queries[query.id], relevant[query.id], accept[query.id] = query, {home: 1}, answers
            subjects[query.id] = subject_of(question)
            topics[query.id] = "value" if _changes(answers) else ""
    if not queries:
        raise InvalidInput(f"{folder / 'queries.jsonl'}: no answer occurs in its page")
    return answer_corpus(
        name, docs, [*queries.values()], relevant, accept, subjects=subjects, revisions=revisions, topics=topics
    )


def _pages(path: Path) -> tuple[dict[str, dict[str, tuple[str, str]]], list[str]]:
    """Title and text by page and version; and all versions, oldest first."""
    pages: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for row in rows.read_jsonl(path):
        doc_id, version = rows.name(row, "doc_id"), rows.name(row, "version")
        if "#" in doc_id:
            raise InvalidInput(f"{row[0]}: doc_id={doc_id!r} must hold no '#', which numbers sections")
        if version in pages[doc_id]:
            raise InvalidInput(f"{row[0]}: document {doc_id!r} has version {version!r} twice")
        text = rows.text(row, "text", default="" if "text" in row[1] else None)  # an empty page says nothing
        pages[doc_id][version] = (rows.text(row, "title", default=doc_id), undated(text))
    return dict(pages), sorted({v for states_ in pages.values() for v in states_})


def _history(pages: Mapping[str, Mapping[str, tuple[str, str]]], number: Mapping[str, int]) -> _History:
    """The text of every section at every version that has it, by a name that does not move with other sections."""
    history: _History = defaultdict(dict)
    for doc_id, at in sorted(pages.items()):
        for version, (title, text) in sorted(at.items()):
            seen: dict[str, int] = defaultdict(int)
            for section in sections(text):
                slug = _slug(section.heading if section.heading != title else "")
                seen[slug] += 1
                section_id = f"{doc_id}#{slug}" + (f"-{seen[slug]}" if seen[slug] > 1 else "")
                heading = f"{title}: {section.heading}" if section.heading not in ("", title) else title
                history[section_id][number[version]] = f"{heading}\n{section.text}"
    return dict(history)


def _docs(history: _History, n_versions: int) -> tuple[list[Doc], tuple[Revision, ...]]:
    """First states and, version by version, what changed, what came and what went."""
    first: list[Doc] = []
    later: list[tuple[int, str, Revision]] = []
    for section_id, texts in sorted(history.items()):
        present = ""
        for version in range(1, n_versions + 1):
            text = texts.get(version, "")
            if text == present or (version == 1 and not text):
                continue
            doc = Doc(section_id, text or present, version=version, kind="page")
            if version == 1:
                first.append(doc)
            else:
                later.append((version, section_id, Revision(doc, "value" if text else REMOVED)))
            present = text
    return first, tuple(revision for _, _, revision in sorted(later, key=lambda e: e[:2]))


def _answers(row: rows.Row, pages: Mapping[str, object], number: Mapping[str, int]) -> tuple[str, _Answers]:
    """The page of a query, and its right answers by version."""
    page = rows.name(row, "doc_id")
    if page not in pages:
        raise InvalidInput(f"{row[0]}: doc_id={page!r} is not in documents.jsonl")
    answers = rows.mapping(row, "answers")
    strange = sorted(set(answers) - set(number))
    if strange:
        raise InvalidInput(f"{row[0]}: answers for version {strange[0]!r}, which no document has")
    return page, {number[v]: rows.texts((row[0], answers), v) for v in answers}


def _home(history: _History, answers: _Answers) -> str | None:
    """The section that states a right answer at the most versions; None when none does."""

    def n_stated(section: str) -> int:
        return sum(_stated(history[section].get(version, ""), accept) for version, accept in answers.items())

    best = max(sorted(history), key=n_stated, default=None)
    return best if best is not None and n_stated(best) else None


def _stated(text: str, accept: Sequence[str]) -> bool:
    return any(states(text, answer) for answer in accept)


def _changes(answers: _Answers) -> bool:
    return len({answers[v] for v in answers}) > 1


def _slug(heading: str) -> str:
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^a-z0-9]+", "-", heading.casefold()).strip("-")[:60] or "top"
