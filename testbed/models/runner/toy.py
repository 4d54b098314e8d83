"""A language model that fits in a test: random weights, whole words, adapters from a line of text.

It says nothing of use. Its answers depend on every word before them, on the weights and on the adapter, so that any
block of another text, model or adapter in its cache shows in what it says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from testbed.core import digest
from testbed.core.errors import InvalidInput
from testbed.models.runner.adapters import Adapter, LowRank
from testbed.models.runner.tokens import BASE_CHAT_STOPS, Message, base_chat
from testbed.models.runner.weights import Loaded, fingerprint, random_llama

_RANK, _SCALE = 4, 0.5


class WordTokenizer:
    """One token a word of a fixed list, case and punctuation aside; 0 begins a text. ``decode`` undoes ``encode``."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = ("", *sorted(set(words)))
        self._ids = {word: i for i, word in enumerate(self._words)}

    @property
    def vocabulary(self) -> int:
        return len(self._words)

    @property
    def stops(self) -> frozenset[int]:
        return frozenset()

    def encode(self, text: str) -> list[int]:
        found = words_of(text)
        unknown = sorted({word for word in found if word not in self._ids})
        if unknown:
            raise InvalidInput(f"the toy model does not know the word {unknown[0]!r}; it knows {len(self._ids)} words")
        return [0, *(self._ids[word] for word in found)]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self._words[i] for i in ids if i)

    def chat(self, messages: Sequence[Message]) -> tuple[list[int], tuple[str, ...]]:
        return self.encode(base_chat(messages)), BASE_CHAT_STOPS


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def load(words: Sequence[str], seed: int = 7) -> Loaded:
    """The toy model over a list of words."""
    tokenizer = WordTokenizer(words)
    model = random_llama(tokenizer.vocabulary, seed, begin=0, end=None).eval().requires_grad_(False)
    return Loaded("toy", model, tokenizer, fingerprint(model), 8192)


def adapter(name: str, text: str, loaded: Loaded) -> Adapter:
    """An adapter of the attention's keys and values, drawn from a text: another text, other weights."""
    draw = torch.Generator().manual_seed(int(digest.of_text(text)[:12], 16))
    weights = {}
    for place, layer in enumerate(loaded.model.model.layers):
        for side in ("k_proj", "v_proj"):
            out, wide = getattr(layer.self_attn, side).weight.shape
            a = torch.randn(_RANK, wide, generator=draw) / wide**0.5
            weights[f"model.layers.{place}.self_attn.{side}"] = LowRank(
                a, torch.randn(out, _RANK, generator=draw), _SCALE
            )
    return Adapter.of(name, weights)
