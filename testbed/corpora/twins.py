"""Twins: questions that look alike and want different answers, in pairs, each kind of difference a topic of its own.

A pair is two things that one word tells apart: a negation, a number, a name, a unit, who comes first, a date, a
quantifier. Both have the same settings with different values, so whoever is given the other one's answer is told
something untrue. In ``multi-turn`` the things are named in an earlier turn and the question itself says "its".
"""

from __future__ import annotations

from typing import Any, NamedTuple

from testbed.core import seeds
from testbed.core.types import Doc, Query
from testbed.corpora import words
from testbed.corpora.attributes import ALIASES
from testbed.corpora.facts import FactCorpus, fact_corpus

SEED = 7
N_TENANTS = 2
N_SETTINGS = 2  # of each thing that is asked about


class _Attribute(NamedTuple):
    name: str
    form: str
    unit: str
    shown: str  # {v} as a page writes it
    values: tuple[str, ...]
    questions: tuple[str, str, str]  # {e} the thing


def _asked(name: str, how: str) -> tuple[str, str, str]:
    return f"What is the {name} for {{e}}?", f"{how} is the {name} for {{e}}?", f"Which {name} is set for {{e}}?"


_ATTRIBUTES = (
    _Attribute("handling fee", "money", "EUR", "{v} euros", tuple(str(n) for n in range(21, 100, 3)),
               _asked("handling fee", "How high")),
    _Attribute("waiting time", "number", "min", "{v} minutes", tuple(str(n) for n in range(12, 90, 4)),
               _asked("waiting time", "How long")),
    _Attribute("daily quota", "number", "", "{v}", tuple(str(n) for n in range(110, 990, 35)),
               _asked("daily quota", "How large")),
    _Attribute("contact team", "term", "", "the {v}",
               tuple(f"{name} Team" for name in ("Harbour", "Meadow", "Summit", "Canyon", "Island", "Prairie",
                                                 "Glacier", "Lagoon", "Desert", "Orchard")),
               ("What is the contact team for {e}?", "Which contact team is set for {e}?",
                "Which contact team is there for {e}?")),
)  # fmt: skip

# Things by kind of difference, two and two.
_PAIRS: dict[str, tuple[tuple[str, str], ...]] = {
    "negation": tuple((f"{thing} including {what}", f"{thing} without {what}") for thing, what in (
        ("parcels", "insurance"), ("tickets", "a seat"), ("rooms", "breakfast"), ("visits", "a guide"),
        ("loans", "a guarantor"), ("orders", "assembly"))),
    "number": (("release 14", "release 15"), ("error 403", "error 404"), ("hall 7", "hall 9"), ("form 30", "form 45"),
               ("gate 2.1", "gate 2.2"), ("route 108", "route 180")),
    "entity": tuple((f"the {a} depot", f"the {b} depot") for a, b in (
        ("Oslo", "Bergen"), ("Madrid", "Toledo"), ("Berlin", "Bremen"), ("Vienna", "Graz"), ("Milan", "Turin"),
        ("Lyon", "Nantes"))),
    "unit": tuple((f"{thing} by the {a}", f"{thing} by the {b}") for thing, a, b in (
        ("freight", "kilogram", "pound"), ("storage", "megabyte", "gigabyte"), ("travel", "mile", "kilometre"),
        ("rent", "week", "month"), ("fuel", "litre", "gallon"), ("support", "hour", "minute"))),
    # written with hyphens, as a reader that takes a sentence for a set of words could not tell them apart otherwise
    "role-swap": tuple((f"the {a}-to-{b} transfers", f"the {b}-to-{a} transfers") for a, b in (
        ("mill", "port"), ("laboratory", "clinic"), ("archive", "library"), ("garage", "airport"),
        ("bakery", "canteen"), ("foundry", "shipyard"))),
    "date": (("the March campaign", "the May campaign"), ("deliveries on Monday", "deliveries on Friday"),
             ("the 2025 season", "the 2026 season"), ("shifts in the morning", "shifts in the evening"),
             ("courses in spring", "courses in autumn"), ("flights today", "flights tomorrow")),
    "quantifier": (("the first inspection", "the last inspection"), ("the smallest crate", "the largest crate"),
                   ("the cheapest licence", "the dearest licence"), ("all printers", "some printers"),
                   ("the minimum booking", "the maximum booking"), ("every member", "any member")),
    "multi-turn": (("the Amber kiosk", "the Coral kiosk"), ("licence 21", "licence 12"),
                   ("the night ferry", "the day ferry"), ("the Lisbon office", "the Porto office"),
                   ("the old silo", "the new silo"), ("the north ramp", "the south ramp")),
}  # fmt: skip
KINDS = tuple(_PAIRS)

_REMARKS = (
    "Changes need two signatures.",
    "Ask the planning desk before you rely on it.",
    "The page is looked over every quarter.",
    "Exceptions are granted in writing only.",
    "Partners were told by letter.",
)


class _Draft:
    def __init__(self) -> None:
        self.docs: list[Doc] = []
        self.facts: dict[tuple[str, int], dict[str, Any]] = {}
        self.queries: list[Query] = []
        self.records: dict[str, str] = {}
        self.subjects: dict[str, str] = {}
        self.topics: dict[str, str] = {}

    def thing(self, tenant: str, kind: str, thing: str, attribute: _Attribute, value: str, control: str) -> None:
        """A page on one setting of a thing, and the questions that it answers."""
        name = thing.removeprefix("the ")
        slug = f"{name} {attribute.name}".replace(" ", "-").lower()
        doc_id = f"{tenant}-{slug}"
        rng = seeds.stream(SEED, "twins", "page", doc_id)
        fact = f"The {attribute.name} for {thing} is {attribute.shown.format(v=value)}."
        text = f"{fact} {rng.choice(_REMARKS)} Document control: {control}."
        self.docs.append(Doc(doc_id, text, tenant, kind="record"))
        self.facts[doc_id, 1] = {
            "entity": name, "attribute": attribute.name, "form": attribute.form, "value": value,
            "unit": attribute.unit, "convention": "", "valid_from": "2025-01-06",
        }  # fmt: skip
        for n, question in enumerate(attribute.questions):
            text = question.format(e=thing)
            if kind == "multi-turn":
                text = f"We are looking at {thing}.\n{question.format(e='it')}"
            query = Query(f"{doc_id}-q{n}", text, tenant)
            self.queries.append(query)
            self.records[query.id], self.subjects[query.id], self.topics[query.id] = doc_id, slug, kind


def build_twins() -> FactCorpus:
    """The twins: the same bytes on every machine. No revisions: nothing here is ever out of date."""
    tenants = words.TENANTS[:N_TENANTS]
    canaries = {t.id: f"{t.id[:3].upper()}-TW{n}N" for n, t in enumerate(tenants, start=1)}
    draft = _Draft()
    for kind, pairs in _PAIRS.items():
        for n, pair in enumerate(pairs):
            for step in range(N_SETTINGS):
                attribute = _ATTRIBUTES[(n + step) % len(_ATTRIBUTES)]
                rng = seeds.stream(SEED, "twins", kind, pair[0], attribute.name)
                values = rng.sample(attribute.values, 2 * N_TENANTS)  # nobody shares a value
                for place, tenant in enumerate(tenants):
                    for thing, value in zip(pair, values[2 * place :], strict=False):
                        draft.thing(tenant.id, kind, thing, attribute, value, canaries[tenant.id])
    return fact_corpus(
        "twins", draft.docs, (), draft.queries, facts=draft.facts, records=draft.records, topics=draft.topics,
        subjects=draft.subjects, glossary={}, canaries=canaries, lexicon=_lexicon(),
    )  # fmt: skip


def _lexicon() -> dict[str, Any]:
    names = sorted(thing.removeprefix("the ") for pairs in _PAIRS.values() for pair in pairs for thing in pair)
    return {
        "entities": {name: [name] for name in names},
        "attributes": {
            a.name: {"phrases": [a.name], "form": a.form, "convention": ""}
            | ({"values": list(a.values)} if a.form == "term" else {})
            for a in _ATTRIBUTES
        },
        "conventions": {},
        "units": {unit: list(ALIASES[unit]) for unit in ("EUR", "min")},
        "qualifiers": {},
        "stands_for": ["means"],
    }
