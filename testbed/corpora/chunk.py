"""Cutting long texts: at headings, and into pieces of whole sentences."""

from __future__ import annotations

import re
from typing import NamedTuple

from testbed.core.errors import InvalidInput

_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=\S)|\n{2,}")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)


class Section(NamedTuple):
    """A heading ("" before the first) and the text below it, without the heading line."""

    heading: str
    text: str


def chunks(text: str, max_words: int) -> list[str]:
    """Pieces of at most ``max_words`` words, cut between sentences where that is possible.

    A sentence that is too long by itself is cut between words. No word is lost, repeated or moved; blanks between
    pieces are not kept. A text of blanks gives no piece.

    Raises
    ------
    InvalidInput : max_words < 1.
    """
    if max_words < 1:
        raise InvalidInput(f"max_words={max_words} must be >= 1 (chunker)")
    pieces: list[str] = []
    held: list[str] = []
    size = 0
    for sentence in _SENTENCES.split(text):
        for part in _fitting(sentence, max_words):
            n = len(part.split())
            if held and size + n > max_words:
                pieces.append(" ".join(held))
                held, size = [], 0
            held.append(part)
            size += n
    return [*pieces, " ".join(held)] if held else pieces


def sections(text: str) -> list[Section]:
    """A Markdown text cut at its headings; parts without text are left out."""
    found: list[Section] = []
    heading, start = "", 0
    for m in [*_HEADING.finditer(text), None]:
        body = text[start : m.start() if m else len(text)].strip()
        if body:
            found.append(Section(heading, body))
        if m:
            heading, start = m.group(1), m.end()
    return found


def _fitting(sentence: str, max_words: int) -> list[str]:
    words = sentence.split()
    if len(words) <= max_words:
        return [sentence.strip()] if words else []
    return [" ".join(words[i : i + max_words]) for i in range(0, len(words), max_words)]
