"""Real life-cycle facts of software products, in sentences of our own, with the revisions that really happened.

The facts (product, release line, day of release, last day of support) stand in ``datasets/lifecycle/lines.csv``. Pages
are written as they would have stood on the first of January of each year; what a later year changed is a revision.
"""

from __future__ import annotations

import csv
import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from testbed.core import seeds
from testbed.core.errors import InvalidInput, Unavailable
from testbed.core.types import Doc, Query, Revision
from testbed.corpora import forms
from testbed.corpora.facts import FactCorpus, fact_corpus

LINES = Path(__file__).resolve().parents[2] / "datasets" / "lifecycle" / "lines.csv"
DAYS = ("2022-01-01", "2023-01-01", "2024-01-01", "2025-01-01")
SEED = 7
N_LINES = 3  # lines of a product that have pages of their own
N_ASKED_LINES = 2  # and those that are asked about


class Line(NamedTuple):
    """A release line; ``ends`` is the last day of support, "" where it was not settled when this was written."""

    product: str
    line: str
    released: str
    ends: str


class _Attribute(NamedTuple):
    name: str
    form: str
    sentences: tuple[str, ...]  # {e} entity, {v} value
    questions: tuple[str, str, str]


_NEWEST = _Attribute(
    "newest release line", "term",
    ("The newest release line of {e}, the series that a new installation gets, is {v}.",
     "{v} is the newest release line of {e} and the series that a new installation gets.",
     "A new installation of {e} gets the series {v}, which is its newest release line."),
    ("What is the newest release line of {e}?", "Which is the newest release line of {e}?",
     "Which series does a new installation of {e} get?"),
)  # fmt: skip
_LAUNCH = _Attribute(
    "latest launch date", "date",
    ("The latest launch date of {e}, the day its current series came out, is {v}.",
     "{v} is the latest launch date of {e}: on that day its current series came out.",
     "The current series of {e} came out on {v}, its latest launch date."),
    ("What is the latest launch date of {e}?", "When was the latest launch date of {e}?",
     "On which day did the current series of {e} come out?"),
)  # fmt: skip
_RELEASED = _Attribute(
    "release date", "date",
    ("The release date of {e} is {v}.", "{e} has the release date {v}.", "{v} is the release date of {e}."),
    ("What is the release date of {e}?", "When was the release date of {e}?", "On which day did {e} come out?"),
)  # fmt: skip
_ENDS = _Attribute(
    "end of support", "date",
    ("The end of support for {e} is {v}.", "{e} reaches its end of support on {v}.",
     "{v} is the end of support of {e}."),
    ("What is the end of support of {e}?", "When is the end of support of {e}?",
     "Until which day does {e} get security fixes?"),
)  # fmt: skip
_ATTRIBUTES = (_NEWEST, _LAUNCH, _RELEASED, _ENDS)

# Pages on launch dates speak of the same thing; without these they would be found instead.
_ABOUT_NEWEST = (
    "A newest release line is what the project itself recommends; previews do not count.",
    "Which release line is the newest one follows from version numbers, not from dates.",
    "Machines are moved to the newest release line when their owner agrees.",
)
_REMARKS = (
    "Plan the move in good time and try it on a copy first.",
    "Distributions may carry packages of their own with other dates.",
    "The project announces changes on its web site.",
    "Ask the platform group before you depend on it.",
    "Vendors sell longer support for some of these.",
    "This page is looked over every January.",
    "Images for the build machines follow within a month.",
    "Release notes are linked from the intranet.",
)


class _Draft:
    def __init__(self) -> None:
        self.docs: list[Doc] = []
        self.revisions: list[tuple[int, str, Revision]] = []
        self.facts: dict[tuple[str, int], dict[str, Any]] = {}
        self.queries: list[Query] = []
        self.records: dict[str, str] = {}
        self.subjects: dict[str, str] = {}
        self.topics: dict[str, str] = {}

    def subject(self, entity: str, attribute: _Attribute, states: list[tuple[int, str]], *, asked: bool) -> None:
        """A page with its states (index of the day, value), and the questions that it answers."""
        slug = _slug(f"{entity} {attribute.name}")
        for version, (day, value) in enumerate(states, start=1):
            doc = Doc(slug, _page(slug, entity, attribute, value), version=version, kind="record")
            self.facts[slug, version] = {
                "entity": entity, "attribute": attribute.name, "form": attribute.form, "value": value, "unit": "",
                "convention": "", "valid_from": DAYS[day],
            }  # fmt: skip
            if version == 1:
                self.docs.append(doc)
            else:
                self.revisions.append((day, slug, Revision(doc, "value")))
        for n, template in enumerate(attribute.questions if asked else ()):
            query = Query(f"{slug}-q{n}", template.format(e=entity))
            self.queries.append(query)
            self.records[query.id], self.subjects[query.id] = slug, slug
            self.topics[query.id] = "value" if len(states) > 1 else ""


def build_lifecycle(path: Path = LINES) -> FactCorpus:
    """The life-cycle set: one tenant, pages on products and on their release lines.

    Raises
    ------
    Unavailable : the facts are not there (an installation without the ``datasets`` folder).
    """
    products = _read(path)
    draft = _Draft()
    for product, lines in sorted(products.items()):
        newest = [_newest(lines, day) for day in DAYS]
        draft.subject(product, _NEWEST, _states([new.line for new in newest]), asked=True)
        draft.subject(product, _LAUNCH, _states([new.released for new in newest]), asked=True)
        shown = seeds.stream(SEED, "lifecycle", product).sample(lines, min(N_LINES, len(lines)))
        for n, line in enumerate(shown):
            entity = f"{product} {line.line}"
            draft.subject(entity, _RELEASED, [(0, line.released)], asked=n < N_ASKED_LINES)
            if line.ends:
                draft.subject(entity, _ENDS, [(0, line.ends)], asked=n < N_ASKED_LINES)
    order = seeds.stream(SEED, "lifecycle", "revisions").sample(draft.revisions, len(draft.revisions))
    revisions = tuple(revision for _, _, revision in sorted(order, key=lambda e: e[0]))
    return fact_corpus(
        "lifecycle", draft.docs, revisions, draft.queries, facts=draft.facts, records=draft.records,
        topics=draft.topics, subjects=draft.subjects, glossary={}, canaries={}, lexicon=_lexicon(products),
    )  # fmt: skip


def _read(path: Path) -> dict[str, list[Line]]:
    """Release lines by product, oldest first."""
    if not path.is_file():
        raise Unavailable(f"the facts of data set 'lifecycle' are not at {path}; run from a checkout of the project")
    products: dict[str, list[Line]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for n, row in enumerate(csv.DictReader(file), start=2):
            line = Line(row["product"], row["line"], row["released"], row["ends"])
            for day in filter(None, (line.released, line.ends)):
                _check_day(day, f"{path}:{n}")
            products.setdefault(line.product, []).append(line)
    for lines in products.values():
        lines.sort(key=lambda line: line.released)
    return products


def _newest(lines: list[Line], day: str) -> Line:
    """The newest line on a day."""
    out = [line for line in lines if line.released <= day]
    if not out:
        raise InvalidInput(f"product {lines[0].product!r} needs a line released before {day} (lines.csv)")
    return out[-1]


def _states(values: list[str]) -> list[tuple[int, str]]:
    """The values that are new on their day, with the index of the day."""
    return [(i, value) for i, value in enumerate(values) if i == 0 or value != values[i - 1]]


def _page(slug: str, entity: str, attribute: _Attribute, value: str) -> str:
    rng = seeds.stream(SEED, "lifecycle", "page", slug)  # the same at every state: only the value changes
    shown = forms.long_date(value) if attribute.form == "date" else value
    fact = rng.choice(attribute.sentences).format(e=entity, v=shown)
    about = [rng.choice(_ABOUT_NEWEST)] if attribute is _NEWEST else []
    return " ".join([fact, *about, *rng.sample(_REMARKS, 2 - len(about))])


def _lexicon(products: Mapping[str, list[Line]]) -> dict[str, Any]:
    lines = sorted({line.line for found in products.values() for line in found})
    names = [*products, *(f"{line.product} {line.line}" for found in products.values() for line in found)]
    return {
        "entities": {name: [name] for name in sorted(names)},
        "attributes": {
            a.name: {"phrases": [a.name], "form": a.form, "convention": ""}
            | ({"values": lines} if a.form == "term" else {})
            for a in _ATTRIBUTES
        },
        "conventions": {},
        "units": {},
        "qualifiers": {},
        "stands_for": ["means"],
    }


def _check_day(day: str, where: str) -> None:
    try:
        datetime.date.fromisoformat(day)
    except ValueError:
        raise InvalidInput(f"{where}: {day!r} is not a date (YYYY-MM-DD)") from None


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() or c == "." else " " for c in text.lower()).split()).strip(".")
