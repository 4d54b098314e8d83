"""Key building beside a bare BLAKE3 of the same bytes. Compare on one machine only."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.caches.keys import blake3_bytes, naive, published_after, published_before, robust, robust_key
from testbed.caches.signature import signature
from testbed.core.types import Key

TEXT = " ".join(f"word{i % 311}" for i in range(1000))  # the text of a query of some 1,000 tokens
PARTS = {"tenant": "tenant-a", "model": "m" * 64, "weights": "w" * 64, "tokenizer": "t", "prompt": "p" * 64}
VECTOR = np.linspace(-1, 1, 384, dtype=np.float32)
RAW = TEXT.encode()
KEY = Key.of(**PARTS, epoch="1", text=TEXT)

BUILDERS = {
    "bare-blake3": lambda: blake3_bytes(RAW),
    "naive": lambda: naive(KEY),
    "core-digest": lambda: KEY.digest(),
    "robust-of-key": lambda: robust(KEY),
    "robust": lambda: robust_key(**PARTS, epoch=1, text=TEXT),
    "robust-with-vector": lambda: robust_key(**PARTS, epoch=1, text=TEXT, vector=VECTOR),
    "signature": lambda: signature(VECTOR, TEXT, 12.5),
    "published-before": lambda: published_before(VECTOR),
    "published-after": lambda: published_after(VECTOR),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_key_of_a_long_query(benchmark, beside, name):
    benchmark.group = "keys"
    assert BUILDERS[name]()
    beside(BUILDERS[name], BUILDERS["bare-blake3"], lambda: ())
