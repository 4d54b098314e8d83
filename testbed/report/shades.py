"""Rates over time as one character a step, in what the terminal can show."""

from __future__ import annotations

import math
from collections.abc import Sequence

BLOCKS, ASCII = " ░▒▓█", " .:=#"
UNKNOWN = "?"


def ramp(encoding: str) -> str:
    """Characters from none to full; plain ASCII where the encoding has no blocks."""
    try:
        BLOCKS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BLOCKS


def shade(values: Sequence[float | None], characters: str, *, top: float = 1.0) -> str:
    """One character a value: 0 is the first, ``top`` and above the last, any value above 0 at least the second."""
    return "".join(_one(value, characters, top) for value in values)


def _one(value: float | None, characters: str, top: float) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    if value <= 0 or top <= 0:
        return characters[0]
    return characters[max(1, min(len(characters) - 1, round(value / top * (len(characters) - 1))))]
