"""Named random streams: one seed, as many independent streams as there are names."""

from __future__ import annotations

import hashlib
import random


def stream(seed: int, *names: str) -> random.Random:
    """A generator that depends on the seed and the names only, never on who drew before."""
    return random.Random(int.from_bytes(_hash(seed, names), "big"))


def uniform(seed: int, *names: str) -> float:
    """One draw in [0, 1) for these names; the same names give the same draw.

    Used to pick *which* keys or documents a fault touches: raising the level only adds to those picked before.
    """
    return int.from_bytes(_hash(seed, names)[:8], "big") / 2.0**64


def _hash(seed: int, names: tuple[str, ...]) -> bytes:
    h = hashlib.blake2b(str(seed).encode(), digest_size=16)
    for name in names:
        raw = name.encode("utf-8", "surrogatepass")
        h.update(len(raw).to_bytes(8, "big") + raw)
    return h.digest()
