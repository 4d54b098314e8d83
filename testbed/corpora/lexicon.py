"""The lexicon: what a reader of claims must know to parse the ledger's English. Recorded with every run."""

from __future__ import annotations

from typing import Any

from testbed.corpora import attributes, words
from testbed.corpora.attributes import Attribute

_KINDS = {"unit": "unit", "currency": "unit", "policy-date": "dates"}


def lexicon(tenants: tuple[words.Tenant, ...]) -> dict[str, Any]:
    """Vocabulary only: names, attributes and their forms, conventions, units, words that qualify. No facts."""
    generic = (*words.ENTITIES, *words.OTHERS)
    return {
        "entities": {name: [name, *(t.codes[i] for t in tenants)] for i, name in enumerate(generic)},
        "attributes": {a.name: _attribute(a) for a in (*attributes.DEPENDENT, *attributes.PLAIN)},
        "conventions": {a.convention: _convention(a) for a in attributes.DEPENDENT},
        "units": {unit: list(names) for unit, names in attributes.ALIASES.items()},
        "qualifiers": {name: list(marks) for name, marks in attributes.QUALIFIERS.items()},
        "stands_for": ["means", "stands for", "starts on", "falls on"],
    }


def _attribute(a: Attribute) -> dict[str, Any]:
    entry: dict[str, Any] = {"phrases": [a.name], "form": a.form, "convention": a.convention}
    if a.form in ("code", "term"):
        entry["values"] = list(a.values)
    return entry


def _convention(a: Attribute) -> dict[str, Any]:
    if a.drift == "currency":
        return {"kind": "unit", "units": list(attributes.CURRENCIES)}
    if a.drift == "unit":
        return {"kind": "unit", "units": list(attributes.UNITS[a.convention])}
    return {"kind": _KINDS.get(a.drift, "meanings"), "keys": list(a.values)}
