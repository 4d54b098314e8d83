"""The ledger: companies with the same settings under other names, generated from a seed, with the truth kept aside.

Every tenant has the same entities under a code name of its own, is asked word-identical questions, and answers them
differently. Two thirds of the facts take two documents: the record states a bare entry, a convention of the tenant
says what it means. Revisions of conventions change the meaning while record, key and question stay as they were.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from testbed.core import seeds
from testbed.core.errors import InvalidInput
from testbed.core.types import Doc, Query, Revision
from testbed.corpora import attributes, conventions, forms, prose, words
from testbed.corpora.attributes import Attribute
from testbed.corpora.facts import FactCorpus, fact_corpus
from testbed.corpora.lexicon import lexicon

N_VALUE_REVISIONS = 10
ASIDES = (("staging", 18), ("archived", 12), ("planned", 10))
N_OTHERS = 10
N_CHATTER = 18
FIRST_DAY = "2025-01-06"


class Setting(NamedTuple):
    """An attribute of an entity: what a question asks for. ``entity`` is an index into the names."""

    entity: int
    attribute: Attribute

    @property
    def slug(self) -> str:
        return _slug(f"{_GENERIC[self.entity]} {self.attribute.name}")


class _Draft:
    """What is collected while a ledger is written."""

    def __init__(self) -> None:
        self.docs: list[Doc] = []
        self.revisions: list[tuple[int, Revision]] = []
        self.facts: dict[tuple[str, int], dict[str, Any]] = {}
        self.queries: list[Query] = []
        self.topics: dict[str, str] = {}
        self.subjects: dict[str, str] = {}
        self.records: dict[str, str] = {}


def build_ledger(seed: int = 7, n_tenants: int = 4) -> FactCorpus:
    """The ledger of a seed: the same arguments give the same bytes on every machine.

    Raises
    ------
    InvalidInput : n_tenants is not 1 to 4.
    """
    if not 1 <= n_tenants <= len(words.TENANTS):
        raise InvalidInput(f"n_tenants={n_tenants} must be 1 to {len(words.TENANTS)} (data set ledger)")
    tenants = words.TENANTS[:n_tenants]
    settings = _settings()
    values = {s: _draw_values(seed, s) for s in settings}
    revised = _revised(seed, settings)
    canaries = {t.id: _canary(seed, t) for t in tenants}
    draft = _Draft()
    for i, tenant in enumerate(tenants):
        _Author(seed, tenant, canaries[tenant.id], draft).write(settings, {s: v[i] for s, v in values.items()}, revised)
    return _corpus(seed, tenants, canaries, draft)


class _Author:
    """Writes the pages of one tenant."""

    def __init__(self, seed: int, tenant: words.Tenant, control: str, draft: _Draft) -> None:
        self.seed, self.tenant, self.control, self.draft = seed, tenant, control, draft

    def write(self, settings: list[Setting], values: dict[Setting, tuple[str, str]], revised: set[Setting]) -> None:
        for attribute in attributes.DEPENDENT:
            self._convention(attribute)
        for setting in settings:
            self._record(setting, values[setting], setting in revised)
            self._questions(setting, setting in revised)
        self._asides(settings, values)
        self._others()
        for n, entity in enumerate(self._rng("chatter").sample(range(len(words.ENTITIES)), N_CHATTER)):
            rng = self._rng("chatter", str(n))
            self._add(f"chat-{n:02d}", 1, "note", prose.chatter_page(rng, self._called(rng, entity), *self._house()))

    def _convention(self, attribute: Attribute) -> None:
        for version in range(1, conventions.N_VERSIONS + 1):
            meaning = conventions.meaning(self.seed, self.tenant.id, attribute.convention, version)
            rng = self._rng("page", attribute.convention)  # the same at each version: only the meaning changes
            text = prose.convention_page(rng, attribute, meaning, *self._house())
            doc = self._add(_slug(attribute.convention), version, "convention", text, drift=attribute.drift)
            self.draft.facts[doc.id, version] = {"convention": attribute.convention, **meaning}

    def _record(self, setting: Setting, values: tuple[str, str], is_revised: bool) -> None:
        attribute = setting.attribute
        refs = (f"{self.tenant.id}-{_slug(attribute.convention)}",) if attribute.convention else ()
        for version, value in enumerate(values[: 2 if is_revised else 1], start=1):
            rng = self._rng("page", setting.slug)
            entity = self._called(rng, setting.entity)
            text = prose.record_page(rng, attribute, entity, value, *self._house())
            doc = self._add(setting.slug, version, "record", text, refs, drift="value")
            unit = attribute.unit or ("EUR" if attribute.form == "money" and not refs else "")
            self.draft.facts[doc.id, version] = {
                "entity": _GENERIC[setting.entity], "attribute": attribute.name, "form": attribute.form,
                "value": forms.plain_number(value) if attribute.form in ("number", "money") else value,
                "unit": unit, "convention": refs[0] if refs else "",
            }  # fmt: skip

    def _questions(self, setting: Setting, is_revised: bool) -> None:
        for n, template in enumerate(setting.attribute.questions):
            text = template.format(e=f"the {_GENERIC[setting.entity]}")
            query = Query(f"{self.tenant.id}-{setting.slug}-q{n}", text, self.tenant.id)
            self.draft.queries.append(query)
            self.draft.subjects[query.id] = setting.slug
            self.draft.records[query.id] = f"{self.tenant.id}-{setting.slug}"
            self.draft.topics[query.id] = setting.attribute.drift or ("value" if is_revised else "")

    def _asides(self, settings: list[Setting], values: dict[Setting, tuple[str, str]]) -> None:
        chosen = self._rng("asides").sample(settings, sum(count for _, count in ASIDES))
        kinds = [kind for kind, count in ASIDES for _ in range(count)]
        for n, (setting, kind) in enumerate(zip(chosen, kinds, strict=True)):
            rng = self._rng("aside", str(n))
            value = rng.choice([v for v in setting.attribute.values if v not in values[setting]])
            entity = self._called(rng, setting.entity)
            text = prose.aside_page(rng, kind, setting.attribute, entity, value, *self._house())
            self._add(f"{kind}-{n:02d}", 1, "note", text)

    def _others(self) -> None:
        """Records of entities that nobody asks about, in the words of those that are asked about."""
        chosen = self._rng("others").sample(attributes.PLAIN + attributes.DEPENDENT, N_OTHERS)
        for n, attribute in enumerate(chosen):
            rng = self._rng("other", str(n))
            entity = self._called(rng, len(words.ENTITIES) + n % len(words.OTHERS))
            refs = (f"{self.tenant.id}-{_slug(attribute.convention)}",) if attribute.convention else ()
            text = prose.record_page(rng, attribute, entity, rng.choice(attribute.values), *self._house())
            self._add(f"other-{n:02d}", 1, "record", text, refs)

    def _add(
        self, slug: str, version: int, kind: str, text: str, refs: tuple[str, ...] = (), *, drift: str = ""
    ) -> Doc:
        doc = Doc(f"{self.tenant.id}-{slug}", text, self.tenant.id, version, "", kind, refs)
        if version == 1:
            self.draft.docs.append(doc)
        else:
            self.draft.revisions.append((version, Revision(doc, drift)))
        return doc

    def _called(self, rng: random.Random, entity: int) -> str:
        return prose.name_of(rng, _GENERIC[entity], self.tenant.codes[entity])

    def _house(self) -> tuple[str, str]:
        return self.tenant.company, self.control

    def _rng(self, *names: str) -> random.Random:
        return seeds.stream(self.seed, "ledger", self.tenant.id, *names)


def _settings() -> list[Setting]:
    """Four attributes of each entity: three of different kinds of drift, one plain."""
    n = len(attributes.DEPENDENT)
    found: list[Setting] = []
    for entity in range(len(words.ENTITIES)):
        chosen = [attributes.DEPENDENT[(entity + step) % n] for step in (0, 5, 11)]
        found += [Setting(entity, a) for a in (*chosen, attributes.PLAIN[entity % len(attributes.PLAIN)])]
    return found


def _draw_values(seed: int, setting: Setting) -> list[tuple[str, str]]:
    """A first and a later raw value for each tenant. No two tenants ever share a value they state."""
    pool = setting.attribute.values
    n = len(words.TENANTS)
    drawn = seeds.stream(seed, "values", setting.slug).sample(pool, min(2 * n, len(pool)))
    later = drawn[n : 2 * n] if len(drawn) == 2 * n else drawn[:n]
    return list(zip(drawn[:n], later, strict=True))


def _revised(seed: int, settings: list[Setting]) -> set[Setting]:
    """Plain settings whose record is rewritten later: the same ones at every tenant."""
    able = [s for s in settings if not s.attribute.drift and len(s.attribute.values) >= 2 * len(words.TENANTS)]
    return set(seeds.stream(seed, "revised").sample(able, N_VALUE_REVISIONS))


def _canary(seed: int, tenant: words.Tenant) -> str:
    """A token such as ``NOR-7Q4X``: no letter or digit that is easily misread."""
    rng = seeds.stream(seed, "canary", tenant.id)
    return f"{tenant.id[:3].upper()}-{rng.choice('23456789')}{''.join(rng.choice(_LETTERS) for _ in range(3))}"


def _corpus(seed: int, tenants: tuple[words.Tenant, ...], canaries: dict[str, str], draft: _Draft) -> FactCorpus:
    shuffled = seeds.stream(seed, "revisions").sample(draft.revisions, len(draft.revisions))
    revisions = tuple(r for _, r in sorted(shuffled, key=lambda pair: pair[0]))  # every second state before any third
    for fact in draft.facts.values():
        fact["valid_from"] = FIRST_DAY
    for n, revision in enumerate(revisions):
        draft.facts[revision.doc.id, revision.doc.version]["valid_from"] = forms.shifted(FIRST_DAY, 7 + 3 * n)
    return fact_corpus(
        "ledger", draft.docs, revisions, draft.queries, facts=draft.facts, records=draft.records, topics=draft.topics,
        subjects=draft.subjects, glossary={t.id: dict(zip(_GENERIC, t.codes, strict=True)) for t in tenants},
        canaries=canaries, lexicon=lexicon(tenants),
    )  # fmt: skip


def _slug(text: str) -> str:
    return text.lower().replace(" ", "-")


_GENERIC = (*words.ENTITIES, *words.OTHERS)
_LETTERS = "ACDEFGHJKLMNPQRTUVWXYZ"
