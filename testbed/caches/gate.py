"""What similarity cannot see: whether two similar questions ask the same thing.

Under MiniLM "... for 30 days" and "... for 45 days" score 0.98, and so do two attributes of one thing asked for in one
wording. The gate below lets a cached answer pass only when nothing that carries meaning differs; it errs towards no,
which costs a hit, never an answer.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[^\W_]+(?:[.,:/'\u2019-][^\W_]+)*")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`")
_SENTENCE_START = re.compile(r"(?:^|[.?!]\s+)[\"“(]?([^\W_]+)")
_NEGATIONS = _words("no not never none nobody nothing neither nor without except cannot unless")
_PAST = _words("was were did had been")
_FUTURE = _words("will shall would")
# Words that join others; each one left out here can never tell two questions apart. No comparatives, no prepositions
# of direction, time or order: those can.
_JOINING = _words(
    """a an the this that these those its it is are be am do does has have of in on at by as with and i you we they me
    my your our their us please tell show give there s can could may might should"""
)
# Verbs that only hold a question together: "which timeout is set for", "which timeout does it use".
_LIGHT = _words("use apply set carry follow get go fall for under which what much many")
_DIRECTIONS = _words("from to into onto than before after between against over above below")
_QUESTION = _words("how who whom whose where when why")
_OPEN = "what is"
_MEASURES = _words("high large long many much often big old far fast soon low small")


class _Meaning(NamedTuple):
    numbers: tuple[str, ...]
    names: tuple[str, ...]
    negations: tuple[str, ...]
    asks_for: str
    tense: str
    content: tuple[str, ...]


def same_numbers_negations_entities(asked: str, stored: str) -> bool:
    """True when the two questions differ in nothing but wording that carries no meaning.

    Compared: numbers and names in their order, quoted strings, negations, tense, what kind of thing is asked for (who,
    when, why, how often, ...), and the remaining words, singular or plural, in their order: who pays whom, and from
    where to where, is said by nothing else. Only "how long is the pump under warranty" may turn round "what is the
    warranty on the pump". A different attribute in the same sentence pattern is a different word.
    """
    a, b = _meaning(asked), _meaning(stored)
    return (
        a.numbers == b.numbers
        and a.names == b.names
        and a.negations == b.negations
        and a.tense == b.tense
        and _compatible(a.asks_for, b.asks_for)
        and (a.content == b.content or _turned_round(a, b))
    )


@lru_cache(maxsize=16384)
def _meaning(text: str) -> _Meaning:
    starts = {m.start(1) for m in _SENTENCE_START.finditer(text)}
    numbers: list[str] = []
    names: list[str] = []
    negations: list[str] = []
    content: list[str] = []
    words = [(m.start(), m.group()) for m in _WORD.finditer(text)]
    for start, word in words:
        low = word.lower().replace("\u2019", "'")
        if any(c.isdigit() for c in word):
            numbers.append(low.replace(",", ""))
        elif low in _NEGATIONS or low.endswith("n't"):
            negations.append("not" if low.endswith("n't") or low == "cannot" else low)
        elif (word[0].isupper() and start not in starts) or (len(word) > 1 and word.isupper()):
            names.append(_singular(low))
        elif low not in _JOINING and low not in _LIGHT and low not in _PAST and low not in _FUTURE:
            content.append(_singular(low))
    names += ["".join(found) for found in _QUOTED.findall(text)]
    lows = [w.lower() for _, w in words]
    asks_for = _asks_for(lows)
    # Gone with the question word: "how high"; and light verbs in another form: "uses".
    gone = _QUESTION | _LIGHT | set(asks_for.split())
    kept = tuple(dict.fromkeys(word for word in content if word not in gone))
    return _Meaning(tuple(numbers), tuple(names), tuple(negations), asks_for, _tense(lows), kept)


def _asks_for(lows: list[str]) -> str:
    """The question word, with its measure ("how often"); "" when anything will do (what, which, or none).

    "When is the date of" and "how high is the fee of" ask what "what is" asks; "how long do I cook it" does not.
    """
    for i, word in enumerate(lows):
        if word not in _QUESTION:
            continue
        following = [*lows[i + 1 : i + 3], "", ""]
        measured = word == "how" and following[0] in _MEASURES
        if (measured or word in ("when", "where")) and following[measured] in ("is", "are", "was", "were"):
            return f"{_OPEN} {following[0]}" if measured else f"{_OPEN} {word}"
        return f"how {following[0]}" if measured else word
    return ""


def _compatible(a: str, b: str) -> bool:
    return a == b or ("" in (a, b) and (a or b).startswith(_OPEN))


def _turned_round(a: _Meaning, b: _Meaning) -> bool:
    """The same words about one thing, in another order for another question word; nothing goes from one to another."""
    return a.asks_for != b.asks_for and sorted(a.content) == sorted(b.content) and not _DIRECTIONS & set(a.content)


def _tense(lows: list[str]) -> str:
    return "future" if _FUTURE & set(lows) else "past" if _PAST & set(lows) else ""


def _singular(word: str) -> str:
    word = word.removesuffix("'s")
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word
