"""Key schemes as they were found in the wild, each with a hole: what the ``prefix-leak`` faults put in place.

Every class names the public report that it copies. None of them is used by the runner itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from testbed.models.runner.chain import Identity, TypedKeys

_SOUND = TypedKeys()


def _root(*values: str) -> bytes:
    return _SOUND.root(Identity("|".join(values)))


class UntaggedParts:
    """Adapter and salt share one untyped tuple: a tenant whose salt is an adapter's name gets its blocks.

    https://github.com/vllm-project/vllm/issues/44701
    """

    def root(self, identity: Identity) -> bytes:
        return _root(identity.model, identity.layout, *(p for p in (identity.adapter_name, identity.salt) if p))

    def child(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        return _SOUND.child(parent, tokens)


class AdapterByName(UntaggedParts):
    """The adapter's name stands for its weights: after a reload under the same name, blocks of the old ones are used.

    https://github.com/vllm-project/vllm/issues/42125, https://github.com/vllm-project/vllm/issues/30931
    """

    def root(self, identity: Identity) -> bytes:
        by_name = Identity(identity.model, identity.adapter_name, identity.salt, identity.layout)
        return _SOUND.root(by_name)


class NoAdapter(UntaggedParts):
    """The adapter is left out: its requests and the base model's share blocks.

    https://github.com/vllm-project/vllm/issues/3264, https://github.com/ggml-org/llama.cpp/issues/26207
    """

    def root(self, identity: Identity) -> bytes:
        return _SOUND.root(Identity(identity.model, "", identity.salt, identity.layout))


class NoSalt(UntaggedParts):
    """The tenant is left out: how long an answer takes tells one tenant what another one asked."""

    def root(self, identity: Identity) -> bytes:
        return _SOUND.root(Identity(identity.model, identity.adapter, "", identity.layout))


class TokensOnly(UntaggedParts):
    """A hash of the tokens alone, as outer tiers that derive a key of their own do.

    https://github.com/vllm-project/vllm/pull/54342, https://github.com/vllm-project/vllm/issues/44250,
    https://github.com/LMCache/LMCache/issues/2961
    """

    def root(self, identity: Identity) -> bytes:
        return _SOUND.root(Identity(""))


class Truncated(UntaggedParts):
    """A sound chain cut to ``bits`` bits (at least 1, at most 64): two texts of one tenant share a block.

    https://github.com/vllm-project/vllm/issues/8229 (a collision of Python's hash)
    """

    def __init__(self, bits: int = 4) -> None:
        self._bits = bits

    def root(self, identity: Identity) -> bytes:
        return self._cut(_SOUND.root(identity))

    def child(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        return self._cut(_SOUND.child(parent, tokens))

    def _cut(self, key: bytes) -> bytes:
        return (int.from_bytes(key[:8], "big") >> (64 - self._bits)).to_bytes(8, "big")


class Mirror(UntaggedParts):
    """A second implementation of the key that has drifted from the first (another order of parts): it never matches.

    https://github.com/llm-d/llm-d-router/issues/2927
    """

    def child(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        return hashlib.blake2b(repr(list(tokens)).encode() + parent, digest_size=32).digest()
