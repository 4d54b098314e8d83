"""Reads claims out of texts: entity, attribute, value and what the value means.

Works from the text and the recorded lexicon alone, with fixed rules: the same text gives the same claims, and a text
that it does not understand gives none. Where a statement takes two sentences (a record's bare entry, a convention's
meaning) the claim is composed when both are in the text; a bare entry alone is a claim whose unit is "".

A convention that no record of the same text uses is a claim of its own: entity = the convention, attribute = what it
is for, value = the entry it explains ("*" for all), unit = the meaning. So passages that are read one by one still
support, together, a claim composed of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from testbed.core.types import Claim
from testbed.metrics.grammar import Grammar, grammar_of, iso_date

EVERY = "*"

_SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
# Factor to the base unit of the dimension.
_SCALES: Mapping[str, tuple[str, Decimal]] = {
    "ms": ("time", Decimal(1)), "s": ("time", Decimal(1000)), "min": ("time", Decimal(60_000)),
    "h": ("time", Decimal(3_600_000)), "day": ("time", Decimal(86_400_000)), "week": ("time", Decimal(604_800_000)),
    "MB": ("size", Decimal(1)), "GB": ("size", Decimal(1000)), "TB": ("size", Decimal(1_000_000)),
}  # fmt: skip


class _Convention(NamedTuple):
    """What one sentence says of a convention: meanings by entry, ``"*"`` for all entries."""

    name: str
    meanings: Mapping[str, str]


def extract(text: str, lexicon: Mapping[str, Any]) -> tuple[Claim, ...]:
    """The claims of a text, in the order of their sentences, without repetitions."""
    grammar = grammar_of(lexicon)
    records: list[Claim] = []
    conventions: list[_Convention] = []
    for sentence in _SENTENCES.split(text):
        record = _record(sentence, grammar)
        if record is not None:
            records.append(record)
        elif not grammar.entities_in(sentence):
            conventions += _conventions(sentence, grammar)
    used = {grammar.convention_of(r.attribute) for r in records}
    composed = [claim for record in records for claim in _composed(record, conventions, grammar)]
    loose = [claim for c in conventions if c.name not in used for claim in _as_claims(c, grammar)]
    return tuple(dict.fromkeys([*composed, *loose]))


def equals(claim: Claim, truth: Claim) -> bool:
    """Do two claims say the same? Units of one dimension are converted: 30 s is 30,000 ms."""
    if (claim.entity.casefold(), claim.attribute.casefold()) != (truth.entity.casefold(), truth.attribute.casefold()):
        return False
    return _same_value(claim, truth)


def supported(claim: Claim, context_claims: Sequence[Claim]) -> bool:
    """Is a claim stated by the context, in one piece or as an entry and its meaning?

    A claim without a unit says less than one with it, so any statement of its value supports it.
    """
    about = [c for c in context_claims if (c.entity, c.attribute) == (claim.entity, claim.attribute)]
    if any(equals(c, claim) for c in about):
        return True
    stated = [c for c in about if _plain(c.value) == _plain(claim.value)]
    if not claim.unit:
        return bool(stated)
    explained = (c for c in context_claims if c.attribute == claim.attribute and c.value in (EVERY, claim.value))
    return any(not c.unit for c in stated) and any(
        c.entity != claim.entity and _plain(c.unit) == _plain(claim.unit) for c in explained
    )


def _record(sentence: str, grammar: Grammar) -> Claim | None:
    """What a sentence says of one attribute of one entity; None when it names none or several, or no clear value."""
    entities, attributes = grammar.entities_in(sentence), grammar.attributes_in(sentence)
    if len(entities) != 1 or len(attributes) != 1:
        return None
    attribute = attributes[0]
    values = grammar.values_in(sentence, attribute)
    if len(values) != 1:
        return None
    value, unit = values[0]
    return Claim(entities[0], attribute + "".join(f" [{q}]" for q in grammar.qualifiers_in(sentence)), value, unit)


def _conventions(sentence: str, grammar: Grammar) -> Iterable[_Convention]:
    for name in grammar.conventions_in(sentence):
        meanings = grammar.meanings_in(sentence, name)
        if meanings:
            yield _Convention(name, meanings)


def _composed(record: Claim, conventions: Sequence[_Convention], grammar: Grammar) -> list[Claim]:
    """The record under each convention of the text that speaks of its attribute; two that differ give two claims."""
    if record.unit:
        return [record]
    name = grammar.convention_of(record.attribute)
    found = [c.meanings.get(record.value, c.meanings.get(EVERY, "")) for c in conventions if c.name == name]
    units = list(dict.fromkeys(unit for unit in found if unit))
    return [Claim(record.entity, record.attribute, record.value, unit) for unit in units] or [record]


def _as_claims(convention: _Convention, grammar: Grammar) -> list[Claim]:
    attribute = grammar.attribute_of(convention.name)
    return [Claim(convention.name, attribute, entry, meaning) for entry, meaning in convention.meanings.items()]


def _same_value(a: Claim, b: Claim) -> bool:
    if (_plain(a.value), _plain(a.unit)) == (_plain(b.value), _plain(b.unit)):
        return True
    scale_a, scale_b = _SCALES.get(a.unit), _SCALES.get(b.unit)
    if scale_a is None or scale_b is None or scale_a[0] != scale_b[0]:
        return False
    try:
        return Decimal(a.value) * scale_a[1] == Decimal(b.value) * scale_b[1]
    except InvalidOperation:
        return False


def _plain(text: str) -> str:
    """Case, spacing and date forms out of the way. Not trailing zeros: version 3.10 is not version 3.1."""
    text = " ".join(text.split()).casefold()
    return iso_date(text) or text
