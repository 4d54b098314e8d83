"""Names of KV blocks: a hash chain over tokens that starts at what the numbers depend on besides the tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Identity:
    """What a KV block depends on besides its tokens.

    ``model`` and ``adapter`` are fingerprints of weights ("" is no adapter): a reload under the same name is another
    identity. ``salt`` is the tenant's. ``layout`` says how the rows were computed and are stored (type, block size).
    ``adapter_name`` is what people call it; no sound key may rest on it.
    """

    model: str
    adapter: str = ""
    salt: str = ""
    layout: str = ""
    adapter_name: str = ""


class KeyScheme(Protocol):
    """``root`` names the empty text under an identity; ``child`` names a block of tokens that follows ``parent``."""

    def root(self, identity: Identity) -> bytes: ...
    def child(self, parent: bytes, tokens: Sequence[int]) -> bytes: ...


class TypedKeys:
    """Every part carries its own tag and length, so that no value can pass for another one's; 256 bits.

    Layout, for a second implementation to check itself against (all integers big-endian):
    root = BLAKE2b-256 of tag (1 byte) + length (8 bytes) + UTF-8 value, for the tags m, a, s, l in this order
    (model, adapter, salt, layout); child = BLAKE2b-256 of "p" + parent (32 bytes) + count (8 bytes) + each token
    (8 bytes).
    """

    def root(self, identity: Identity) -> bytes:
        h = hashlib.blake2b(digest_size=32)
        parts = ((b"m", identity.model), (b"a", identity.adapter), (b"s", identity.salt), (b"l", identity.layout))
        for tag, value in parts:
            raw = value.encode()
            h.update(tag + len(raw).to_bytes(8, "big") + raw)
        return h.digest()

    def child(self, parent: bytes, tokens: Sequence[int]) -> bytes:
        h = hashlib.blake2b(b"p" + parent + len(tokens).to_bytes(8, "big"), digest_size=32)
        for token in tokens:
            h.update(token.to_bytes(8, "big"))
        return h.digest()
