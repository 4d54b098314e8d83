"""Digests of values, the same on every machine, Python and hash seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

SHORT = 16  # hex digits shown and stored in traces: 64 bits, names texts inside one run, never a security boundary


def of_bytes(data: bytes) -> str:
    """BLAKE2b-256 of the bytes, as 64 hex digits."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


@lru_cache(maxsize=1 << 16)  # a run names the same few thousand texts over and over
def of_text(text: str) -> str:
    """Digest of a text, 16 hex digits: the name under which a trace refers to it."""
    return of_bytes(text.encode("utf-8", "surrogatepass"))[:SHORT]


def of_parts(parts: Iterable[tuple[str, str]]) -> str:
    """Digest of named parts, 32 hex digits.

    Every name and value is tagged and length-prefixed, so ``(("a", "bc"),)`` and ``(("ab", "c"),)`` differ.
    """
    h = hashlib.blake2b(digest_size=16)
    for name, value in parts:
        for tag, raw in ((b"n", name.encode()), (b"v", value.encode("utf-8", "surrogatepass"))):
            h.update(tag + len(raw).to_bytes(8, "big") + raw)
    return h.hexdigest()


def of_json(value: Any) -> str:
    """Digest of a JSON value in its canonical form, 64 hex digits."""
    return of_bytes(canonical(value))


def canonical(value: Any) -> bytes:
    """The one byte form of a JSON value: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(
        "utf-8", "surrogatepass"
    )
