"""What can be said of an answer without a ledger of facts: does it hold an accepted string, are its words there.

Neither is faithfulness. A stale passage grounds a stale answer perfectly; only a ledger tells that it is wrong.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

ANSWER_CONTAINMENT = "answer-containment"
LEXICAL_GROUNDING = "lexical-grounding"

# Words that carry no content of their own: an answer is not grounded because its "the" is.
# fmt: off
_STOP = frozenset((
    "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "do", "does", "for", "from", "had",
    "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "may", "of", "on", "or", "our",
    "shall", "so", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "to", "was",
    "we", "were", "what", "when", "where", "which", "who", "will", "with", "would", "you", "your",
))
# fmt: on


def answer_containment(text: str, accept: Sequence[str]) -> float:
    """1.0 when an accepted string occurs in the text as whole words or numbers, 0.0 when none does.

    Case, width and spacing do not count. "3.1" does not occur in "3.1.2", nor "30" in "130" or "30.5". NaN (unscored)
    when the data set accepts no string.
    """
    patterns = [_whole(alias) for alias in accept if _plain(alias)]
    if not patterns:
        return float("nan")
    plain = _plain(text)
    return 1.0 if any(pattern.search(plain) for pattern in patterns) else 0.0


def lexical_grounding(text: str, passages: Iterable[str]) -> float:
    """Share of the answer's distinct content words and numbers that occur in the passages; NaN when it has none."""
    words = set(_words(text)) - _STOP
    if not words:
        return float("nan")
    served = {word for passage in passages for word in _passage_words(passage)}
    return len(words & served) / len(words)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _words(text: str) -> list[str]:
    return re.findall(r"\d+(?:[.,:/-]\d+)*|[^\W\d_]+", _plain(text))


@lru_cache(maxsize=8192)
def _passage_words(passage: str) -> frozenset[str]:
    return frozenset(_words(passage))


@lru_cache(maxsize=8192)
def _whole(alias: str) -> re.Pattern[str]:
    """The alias between boundaries that fit its ends: digits do not continue a number, letters not a word."""
    plain = _plain(alias)
    return re.compile(_before(plain[0]) + re.escape(plain) + _after(plain[-1]))


def _before(char: str) -> str:
    if char.isdigit():
        return r"(?<![\w-])(?<!\d[.,:/])"
    return r"(?<!\w)" if _is_spaced(char) else ""


def _after(char: str) -> str:
    if char.isdigit():
        return r"(?!\w)(?![.,:/-]\d)"
    return r"(?!\w)" if _is_spaced(char) else ""


def _is_spaced(char: str) -> bool:
    """Whether the script puts spaces between words: Chinese, Japanese and Thai do not."""
    return char.isalnum() and not ("\u0e00" <= char <= "\u0e7f" or "\u2e80" <= char <= "\u9fff" or char >= "\uf900")
