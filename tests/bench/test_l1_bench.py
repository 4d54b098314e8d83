"""A lookup in the exact first level with a query of 1,000 tokens, beside a bare dict. Compare on one machine only.

Each lookup gets a string that no lookup had before, as a service does: Python keeps the hash of a string it has seen,
and compares a string with itself by address.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from testbed.caches.memory import MemoryCache
from testbed.core.types import Key

N_ENTRIES, N_TOKENS = 500, 1000
QUESTIONS = [
    [f"question{i}", *(f"w{(i * 31 + j) % 997}" for j in range(N_TOKENS - 1))] for i in range(N_ENTRIES)
]  # 1,000 tokens each
TEXTS = [" ".join(tokens) for tokens in QUESTIONS]
PARTS = {
    "tenant": "tenant-a",
    "model": "m" * 64,
    "weights": "w" * 64,
    "tokenizer": "t",
    "prompt": "p" * 64,
    "epoch": "1",
}
ANSWER = {"text": "The request timeout is 30 s.", "ranking": [f"doc-{i}" for i in range(5)], "abstained": False}


def key(text: str) -> Key:
    return Key.of(text=text, **PARTS)


def key_of_tokens(tokens: list[str]) -> Key:
    return Key.of(tokens="\n".join(tokens), **PARTS)


def copied(text: str) -> str:
    """An equal string that is another object, whose hash nobody has asked for."""
    return text.encode().decode()


def filled(keys: list[Key]) -> MemoryCache:
    cache = MemoryCache(N_ENTRIES)
    for each in keys:
        cache.put(each, ANSWER)
    return cache


@pytest.mark.parametrize("what", ["hit", "miss"])
@pytest.mark.parametrize("given", ["text", "tokens", "key"])
def test_l1_lookup_of_a_1000_token_query(benchmark: Any, beside: Any, given: str, what: str) -> None:
    benchmark.group = "l1"
    of_tokens = given == "tokens"
    cache = filled([*map(key_of_tokens, QUESTIONS)] if of_tokens else [*map(key, TEXTS)])
    bare = {text: text for text in TEXTS}
    turns = itertools.count()
    end = "" if what == "hit" else " again"

    def fresh() -> tuple[Any, str]:
        i = next(turns) % N_ENTRIES
        text = copied(TEXTS[i] + end)
        if of_tokens:
            # Joined anew, so never hashed before; copied, so that they are at hand, as a tokenizer has just made them.
            return [*QUESTIONS[i], *([end] if end else [])], text
        return (key(copied(text)) if given == "key" else copied(text)), text

    make = {"text": key, "tokens": key_of_tokens, "key": lambda made: made}[given]
    found = cache.get(make(fresh()[0]))
    assert found == (ANSWER if what == "hit" else None)
    beside(lambda asked, text: cache.get(make(asked)), lambda asked, text: bare.get(text), fresh)
