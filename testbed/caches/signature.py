"""The published incremental signature of a cache entry: norm, chunk digest, second."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.caches.keys import blake3_bytes


def signature(embedding: NDArray[Any], chunk: str, now_s: float) -> str:
    """``<L2 norm, 3 decimals>_<first 8 bytes of BLAKE3 of the chunk, hex>_<whole seconds>``.

    The norm says nothing about an embedding that was normalised before, and the second makes every key new after at
    most one second: the entry has a lifetime that nobody set.
    """
    norm = float(np.linalg.norm(embedding.astype(np.float64)))
    chunk_digest = blake3_bytes(chunk.encode("utf-8", "surrogatepass"), 8).hex()
    return f"{norm:.3f}_{chunk_digest}_{math.floor(now_s)}"
