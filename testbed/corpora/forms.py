"""How values are written: canonical forms inside claims, several natural forms inside texts."""

from __future__ import annotations

import datetime
from decimal import Decimal

from testbed.corpora.attributes import ALIASES, LONG_UNIT


def plain_number(value: str) -> str:
    """The canonical form of a number: no separators, no trailing zeros (``"1200.50"`` -> ``"1200.5"``)."""
    number = Decimal(value.replace(",", ""))
    return format(number.normalize() if number % 1 else number.to_integral_value(), "f")


def grouped(value: str) -> str:
    """A number as people print it: thousands grouped, cents with two digits."""
    number = Decimal(value)
    return f"{number:,.2f}" if number % 1 else f"{number:,.0f}"


def long_date(iso: str) -> str:
    """``2025-03-04`` -> ``4 March 2025``."""
    day = datetime.date.fromisoformat(iso)
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def shifted(iso: str, days: int) -> str:
    return (datetime.date.fromisoformat(iso) + datetime.timedelta(days=days)).isoformat()


def accepted(value: str, unit: str, form: str) -> tuple[str, ...]:
    """The strings that state this value with its meaning, the most natural one first."""
    if form == "date":
        return (long_date(value), value)
    if not unit:
        return (value,)
    if unit in ALIASES:
        names = (LONG_UNIT.get(unit, unit), unit)
        return tuple(dict.fromkeys(f"{grouped(value)} {name}" for name in names))
    if len(unit) == 10 and unit[4] == unit[7] == "-":
        return (long_date(unit), unit)
    return (unit,)


_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
