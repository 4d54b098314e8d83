"""Sentences and pages of the ledger: facts in, English out. Every choice of wording is drawn from the stream given."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from testbed.corpora import forms, words
from testbed.corpora.attributes import LONG_UNIT, Attribute

# {a} attribute, {g} its gloss, {e} entity, {v} value, {c} convention, {w} what the convention gives
_DEPENDENT = (
    "The {a} of {e} ({g}) is {v}, to be read with the {w} of the {c}.",
    "{E} has the {a} {v}, that is {g}; the {c} gives the {w}.",
    "For {e} the {a}, {g}, is entered as {v} with the {w} of the {c}.",
    "{E} is listed with {v} as its {a}, {g}, and the {c} gives the {w}.",
)
_PLAIN = (
    "The {a} of {e} ({g}) is {v}.",
    "{E} has the {a} {v}, that is {g}.",
    "For {e} the {a}, {g}, is {v}.",
    "{E} is listed with {v} as its {a}, {g}.",
)
# How often a page names its attribute a second time: less for those that are easy to find anyway.
_REPEATS = {"": 0.75, "unit": 0.15, "enum": 0.8, "policy-date": 0.4}

_GIVES = {
    "unit": "unit", "currency": "currency", "enum": "meaning", "composite": "meaning", "policy-date": "date",
    "definition": "definition",
}  # fmt: skip

_ONE_UNIT = (
    "Under the {c}, every {a} is given in {u}.",
    "The {c} has every {a} stated in {u}.",
    "According to the {c}, {u} are used for every {a}.",
)
_MANY = (
    "Under the {c}, the entries for {a} are read as follows: {list}.",
    "The {c} explains the entries for {a}: {list}.",
    "According to the {c}, these are the entries for {a}: {list}.",
)

_ASIDES = {
    "staging": (
        "On the staging copy of {e} the {a} is {v}.",
        "The rehearsal system next to {e} works with {v} as {a}.",
        "In staging, testers gave {e} the {a} {v}.",
    ),
    "archived": (
        "The {a} of {e} was formerly {v}.",
        "Until the handbook was rewritten, {e} had the {a} {v}.",
        "As {a}, {e} used to have {v}.",
    ),
    "planned": (
        "A proposal would set the {a} of {e} to {v}.",
        "The draft plan for next year gives {e} the {a} {v}.",
        "It has been proposed that {e} should get {v} as its {a}.",
    ),
}
_ASIDE_OPENERS = {
    "staging": ("Testers share one page for their own copies.", "This page is about test systems and nothing else."),
    "archived": ("Kept for the record, not in force any more.", "From the minutes of an earlier board."),
    "planned": ("Nothing on this page has been decided.", "Ideas for the coming year are collected here."),
}


def name_of(rng: random.Random, generic: str, code: str) -> str:
    """How a page calls an entity: mostly by the tenant's own name, which is why the glossary is needed."""
    draw = rng.random()
    if draw < 0.93:
        return code
    return f"the {generic}" if draw < 0.97 else f"the {generic} {code}"


def record_page(rng: random.Random, attribute: Attribute, entity: str, value: str, company: str, control: str) -> str:
    """Two to six sentences of which one states the fact."""
    opener = [rng.choice(words.OPENERS)] if rng.random() < 0.5 else []
    remarks = rng.sample(words.REMARKS, rng.choice((0, 1, 1, 2, 2)))
    repeats = rng.random() < _REPEATS.get(attribute.drift, 0.6)
    about = [rng.choice(words.ABOUT).format(a=attribute.name)] if repeats else []
    fact = record_sentence(rng, attribute, entity, value)
    return _page([*opener, fact, *about, *remarks], entity, company, control)


def record_sentence(rng: random.Random, attribute: Attribute, entity: str, value: str) -> str:
    template = rng.choice(_DEPENDENT if attribute.convention else _PLAIN)
    gives = _GIVES.get(attribute.drift, "")
    shown = written(rng, attribute, value)
    return template.format(
        a=attribute.name, g=attribute.gloss, e=entity, E=_capital(entity), v=shown, c=attribute.convention, w=gives
    )


def convention_page(
    rng: random.Random, attribute: Attribute, meaning: Mapping[str, Any], company: str, control: str
) -> str:
    """A house rule: one sentence holds all of it."""
    opener = rng.choice(words.CONVENTION_OPENERS)
    remarks = rng.sample(words.CONVENTION_REMARKS, rng.choice((1, 2)))
    return _page([opener, convention_sentence(rng, attribute, meaning), *remarks], "", company, control)


def convention_sentence(rng: random.Random, attribute: Attribute, meaning: Mapping[str, Any]) -> str:
    name = attribute.convention
    if "unit" in meaning:
        return _sentence(rng, _ONE_UNIT, c=name, a=attribute.name, u=LONG_UNIT[meaning["unit"]])
    dated = attribute.drift == "policy-date"
    verb = "starts on" if dated else rng.choice(("means", "stands for"))
    entries = [f"{key} {verb} {forms.long_date(m) if dated else m}" for key, m in meaning["meanings"].items()]
    return _sentence(rng, _MANY, c=name, a=attribute.name, list=", ".join(entries))


def aside_page(
    rng: random.Random, aside: str, attribute: Attribute, entity: str, value: str, company: str, control: str
) -> str:
    """A look-alike: the setting of a test system, of the past, or of a plan."""
    fact = _sentence(rng, _ASIDES[aside], a=attribute.name, e=entity, v=written(rng, attribute, value))
    remarks = rng.sample(words.REMARKS, rng.choice((2, 3)))
    return _page([rng.choice(_ASIDE_OPENERS[aside]), fact, *remarks], entity, company, control)


def chatter_page(rng: random.Random, entity: str, company: str, control: str) -> str:
    story = [rng.choice(words.CHATTER), rng.choice(words.SMALL_TALK), rng.choice(words.REMARKS)]
    return _page(story, entity, company, control)


def written(rng: random.Random, attribute: Attribute, value: str) -> str:
    """A raw value as a page writes it."""
    if attribute.form == "date":
        return forms.long_date(value)
    if attribute.form == "money":
        amount = forms.grouped(value)
        return amount if attribute.convention else rng.choice((f"EUR {amount}", f"{amount} euros"))
    if attribute.form == "number" and attribute.name != "network port":
        return f"{forms.grouped(value)} {attribute.unit}".strip()
    return value


def _sentence(rng: random.Random, templates: tuple[str, ...], **fill: str) -> str:
    text = rng.choice(templates).format(**fill)
    return _capital(text)


def _page(sentences: list[str], entity: str, company: str, control: str) -> str:
    body = " ".join(_capital(s.format(e=entity, company=company)) for s in sentences)
    return f"{body} Document control: {control}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
