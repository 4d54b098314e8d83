"""A language model that is built, not trained: asked for a key, it looks back for the token that holds its value.

One layer, one head. A fact is one token (``gateway=seven``) that carries the code of its key and of its value; a
question (``gateway?``) carries the code of its key, and what its attention brings back is the code of the value. All
other words carry codes of their own, and look at whatever their code resembles: before the question nothing tells a
fact from other words, as in a trained model. Codes lie where the rotation is slow, so that distance hardly matters.
What the answer needs is exactly one row of the KV cache: a cache that has lost it cannot answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch

from testbed.core import digest
from testbed.core.errors import InvalidInput
from testbed.models.runner import generate
from testbed.models.runner.kv import SlidingSparseCache, attached
from testbed.models.runner.policy import Policy

_CODE = 32  # signs of a code; of a key, of a question, of a value, and 32 channels that do nothing
_HIDDEN, _HEAD = 4 * _CODE, 64
_SHARPNESS = 3.0  # a match stands out by about 11 nats over 500 other tokens


class LookupModel:
    """``read`` takes a text in, ``ask`` puts a question to it as a turn of its own; no answer changes what was read."""

    def __init__(self, keys: Sequence[str], values: Sequence[str], words: Sequence[str]) -> None:
        tokens = [f"{k}={v}" for k in keys for v in values] + [f"{k}?" for k in keys] + [*values, *words]
        self._ids = {token: i for i, token in enumerate(sorted(set(tokens)))}
        self._tokens = list(self._ids)
        self.fingerprint = digest.of_parts([("tokens", " ".join(self._tokens))])
        self._values = {v: self._ids[v] for v in values}
        self._model = _model(len(self._ids))
        self._build(keys, values)
        self._open = ExitStack()
        self._open.enter_context(attached(self._model))

    @torch.inference_mode()
    def read(self, text: str, policy: Policy, chunk: int) -> SlidingSparseCache:
        """The cache after a text, pruned after every chunk."""
        cache = SlidingSparseCache(self._model, policy)
        generate.prefill(self._model, self._encoded(text), cache, chunk)
        return cache

    @torch.inference_mode()
    def ask(self, cache: SlidingSparseCache, question: str) -> str:
        """The value that the model gives, from a copy of the cache."""
        logits = generate.prefill(self._model, self._encoded(question), cache.fork(), 64)
        return max(self._values, key=lambda v: (float(logits[self._values[v]]), v))

    def close(self) -> None:
        self._open.close()

    def _encoded(self, text: str) -> torch.Tensor:
        words = text.lower().replace(".", "").split()
        unknown = sorted({w for w in words if w not in self._ids})
        if unknown:
            raise InvalidInput(f"the lookup model does not know {unknown[0]!r}")
        return torch.tensor([[self._ids[w] for w in words]])

    def _build(self, keys: Sequence[str], values: Sequence[str]) -> None:
        draw = torch.Generator().manual_seed(7)

        def signs(n: int) -> torch.Tensor:
            return torch.randint(0, 2, (n, _CODE), generator=draw).float() * 2 - 1

        key_code, value_code = (
            dict(zip(keys, signs(len(keys)), strict=True)),
            dict(zip(values, signs(len(values)), strict=True)),
        )
        embedding = torch.zeros(len(self._ids), _HIDDEN)
        key, ask, value, rest = (slice(i * _CODE, (i + 1) * _CODE) for i in range(4))
        noise = iter(signs(2 * len(self._ids)))
        for token, i in self._ids.items():
            name, is_fact, given = token.partition("=")
            if is_fact:
                embedding[i, key], embedding[i, value] = key_code[name], value_code[given]
            elif token.endswith("?"):
                embedding[i, ask], embedding[i, rest] = key_code[token[:-1]], next(noise)
            else:
                embedding[i, key], embedding[i, ask] = next(noise), next(noise)
        attention = self._model.model.layers[0].self_attn
        # channels of the head that turn slowly: the upper half of each of its two halves
        slow = torch.tensor([*range(_HEAD // 4, _HEAD // 2), *range(3 * _HEAD // 4, _HEAD)])
        with torch.no_grad():
            for parameter in self._model.parameters():
                if parameter.dim() > 1:
                    parameter.zero_()
            self._model.model.embed_tokens.weight.copy_(embedding)
            attention.q_proj.weight[slow, ask] = torch.eye(_CODE) * _SHARPNESS**0.5
            attention.k_proj.weight[slow, key] = torch.eye(_CODE) * _SHARPNESS**0.5
            attention.v_proj.weight[:_CODE, value] = torch.eye(_CODE)
            attention.o_proj.weight[value, :_CODE] = torch.eye(_CODE)
            for name, i in self._values.items():
                self._model.lm_head.weight[i, value] = value_code[name]


def _model(vocabulary: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=_HIDDEN,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=_HEAD,
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 1e8},
        tie_word_embeddings=False,
    )
    model: Any = LlamaForCausalLM(config)
    return model.eval().requires_grad_(False)
