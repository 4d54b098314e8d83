"""The patterns that a lexicon stands for: where entities, attributes, values and meanings are in a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH = "|".join(_MONTHS)
_DATE = re.compile(
    rf"(?<![\w-])(?:(\d{{4}})-(\d\d)-(\d\d)|(\d{{1,2}}) ({_MONTH}) (\d{{4}})|({_MONTH}) (\d{{1,2}}), (\d{{4}}))"
    r"(?![\w-])",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.,:/-])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![:/]?\d|[.,]\d)")


class Grammar:
    """A lexicon, compiled. Generic names count in any case, code names only as they are written."""

    def __init__(self, lexicon: Mapping[str, Any]) -> None:
        self._attributes: Mapping[str, Any] = lexicon["attributes"]
        self._conventions: Mapping[str, Any] = lexicon["conventions"]
        self._entities = _names(lexicon["entities"])
        self._phrases = _names({name: entry["phrases"] for name, entry in self._attributes.items()})
        self._names = _names({name: [name] for name in self._conventions})
        self._qualifiers = _names(lexicon["qualifiers"])
        self._units = {alias.casefold(): unit for unit, aliases in lexicon["units"].items() for alias in aliases}
        self._by_convention = {e["convention"]: name for name, e in self._attributes.items() if e["convention"]}
        unit = _any(alias for aliases in lexicon["units"].values() for alias in aliases)
        self._unit = re.compile(rf"(?<!\w)({unit})(?!\w)", re.IGNORECASE)
        self._before = re.compile(rf"(?<!\w)({unit})\s?$", re.IGNORECASE)
        self._after = re.compile(rf"[\s-]?({unit})(?!\w)", re.IGNORECASE)
        self._stands_for = "|".join(re.escape(v) for v in lexicon["stands_for"])
        self._terms = {
            name: re.compile(rf"(?<![\w.,:-])({_any(e['values'])})(?![\w-]|[.,:]\w)", re.IGNORECASE)
            for name, e in self._attributes.items()
            if "values" in e
        }
        self._spelt = {n: {v.casefold(): v for v in e["values"]} for n, e in self._attributes.items() if "values" in e}
        self._entries = {name: self._entry(e["keys"]) for name, e in self._conventions.items() if "keys" in e}

    def entities_in(self, sentence: str) -> list[str]:
        return self._entities.names_in(sentence)

    def attributes_in(self, sentence: str) -> list[str]:
        return self._phrases.names_in(self._names.blanked(sentence))

    def conventions_in(self, sentence: str) -> list[str]:
        return self._names.names_in(sentence)

    def qualifiers_in(self, sentence: str) -> list[str]:
        return sorted(self._qualifiers.names_in(sentence))

    def convention_of(self, attribute: str) -> str:
        """The convention that an attribute depends on, "" for none. A qualified attribute depends on none."""
        return str(self._attributes[attribute]["convention"]) if attribute in self._attributes else ""

    def attribute_of(self, convention: str) -> str:
        return str(self._by_convention.get(convention, convention))

    def values_in(self, sentence: str, attribute: str) -> list[tuple[str, str]]:
        """Distinct (value, unit) pairs that could be the attribute's, canonical; names are no values."""
        rest = self._names.blanked(self._phrases.blanked(self._entities.blanked(sentence)))
        form = self._attributes[attribute]["form"]
        if form in ("code", "term"):
            spelt = self._spelt[attribute]
            found = [(spelt[m.group(1).casefold()], "") for m in self._terms[attribute].finditer(rest)]
        elif form == "date":
            found = [(iso, "") for m in _DATE.finditer(rest) if (iso := _iso(m))]
        else:
            found = self._numbers(_DATE.sub(lambda m: " " * len(m.group()), rest))
        return list(dict.fromkeys(found))

    def meanings_in(self, sentence: str, convention: str) -> dict[str, str]:
        """What a sentence says of a convention: meaning by entry, ``"*"`` for all; {} when it is not clear."""
        entry = self._conventions[convention]
        if entry["kind"] == "unit":
            rest = self._names.blanked(self._phrases.blanked(sentence))
            found = {self._units[m.group(1).casefold()] for m in self._unit.finditer(rest)} & set(entry["units"])
            return {"*": found.pop()} if len(found) == 1 else {}
        spelt = {key.casefold(): key for key in entry["keys"]}
        pairs = [(spelt[m.group(1).casefold()], m.group(2)) for m in self._entries[convention].finditer(sentence)]
        return {key: _meaning(text, entry["kind"]) for key, text in pairs}

    def _entry(self, keys: Sequence[str]) -> re.Pattern[str]:
        key = rf"(?<![\w-])({_any(keys)})\s+(?:{self._stands_for})\s+"
        following = rf"(?<![\w-])(?:{_any(keys)})\s+(?:{self._stands_for})\s"
        return re.compile(rf"{key}(.+?)(?=[,;]?\s+(?:and\s+)?{following}|[.;]\s|[.;]?\s*$)", re.IGNORECASE)

    def _numbers(self, text: str) -> list[tuple[str, str]]:
        """Every number with the unit after it, or before it (money)."""
        found = []
        for m in _NUMBER.finditer(text):
            near = self._after.match(text, m.end()) or self._before.search(text[: m.start()])
            if near or not text[m.end() : m.end() + 1].isalpha():  # "30s" is a number, "3rd" is none
                found.append((number(m.group()), self._units[near.group(1).casefold()] if near else ""))
        return found


class _Names:
    """Names and what they stand for, longest first."""

    def __init__(self, names: Mapping[str, Iterable[str]]) -> None:
        self._name_of = {alias.casefold(): name for name, aliases in names.items() for alias in aliases}
        aliases = sorted({a for found in names.values() for a in found}, key=lambda a: (-len(a), a))
        parts = [re.escape(a) if a[:1].isupper() else f"(?i:{re.escape(a)})" for a in aliases]
        self._pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(parts) or '(?!)'})(?![\w-])")

    def names_in(self, text: str) -> list[str]:
        return list(dict.fromkeys(self._name_of[m.group().casefold()] for m in self._pattern.finditer(text)))

    def blanked(self, text: str) -> str:
        return self._pattern.sub(lambda m: " " * len(m.group()), text)


def _names(names: Mapping[str, Iterable[str]]) -> _Names:
    return _Names(names)


def grammar_of(lexicon: Mapping[str, Any]) -> Grammar:
    """The compiled form of a lexicon; the last one is kept, since a run has one."""
    global _last
    if _last is None or _last[0] is not lexicon:
        _last = (lexicon, Grammar(lexicon))
    return _last[1]


_last: tuple[Mapping[str, Any], Grammar] | None = None


def number(text: str) -> str:
    """``1,200.50`` -> ``1200.5``."""
    value = Decimal(text.replace(",", ""))
    return format(value.normalize() if value % 1 else value.to_integral_value(), "f")


def iso_date(text: str) -> str:
    """ISO form of a text that is a date and nothing else, "" when it is none."""
    m = _DATE.fullmatch(text.strip())
    return _iso(m) if m else ""


def _iso(m: re.Match[str]) -> str:
    year, month, day, day2, month2, year2, month3, day3, year3 = m.groups()
    if year:
        return f"{year}-{month}-{day}"
    name, d, y = (month2, day2, year2) if month2 else (month3, day3, year3)
    return f"{y}-{_MONTHS.index(name.casefold()) + 1:02d}-{int(d):02d}"


def _meaning(text: str, kind: str) -> str:
    text = " ".join(text.split()).strip(" .,;")
    return iso_date(text) or text if kind == "dates" else text


def _any(names: Iterable[str]) -> str:
    return "|".join(re.escape(n) for n in sorted(names, key=lambda n: (-len(n), n))) or "(?!)"
