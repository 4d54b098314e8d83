"""The house rules of a tenant: what its units, currencies, codes, phases and terms mean, version by version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.core import seeds
from testbed.corpora import attributes, forms

N_VERSIONS = 3


def meaning(seed: int, tenant: str, convention: str, version: int) -> Mapping[str, Any]:
    """What a convention says at a version: ``{"unit": ...}`` or ``{"meanings": {entry: meaning}}``.

    No entry keeps its meaning from one version to the next, and none gets an earlier meaning back.
    """
    drift, keys = _ABOUT[convention]
    rng = seeds.stream(seed, "convention", tenant, convention)
    if drift in ("unit", "currency"):
        units = attributes.CURRENCIES if drift == "currency" else attributes.UNITS[convention]
        return {"unit": rng.sample(units, len(units))[version - 1]}
    if drift == "composite":
        return {"meanings": {key: _composite(convention, key, version) for key in keys}}
    if drift == "policy-date":
        offset = rng.randrange(0, 24) + (version - 1) * rng.randrange(9, 27)
        days = (forms.shifted(day, offset) for day in attributes.PHASE_DAYS)
        return {"meanings": dict(zip(keys, days, strict=True))}
    pool = rng.sample(attributes.MEANINGS[convention], len(keys))
    turn = 2 * (version - 1)
    return {"meanings": {key: pool[(i + turn) % len(pool)] for i, key in enumerate(keys)}}


def _composite(convention: str, key: str, version: int) -> str:
    """At first the letter alone counts, then the digit too, then both under one more clause."""
    letters, digits, clause = attributes.COMPOSITES[convention]
    letter, digit = letters[key[0]], digits[key[1]]
    return (letter, f"{letter} {digit}", f"{letter} {digit} {clause}")[version - 1]


_ABOUT = {a.convention: (a.drift, a.values) for a in attributes.DEPENDENT}
