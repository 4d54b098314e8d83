"""The published signature, by example."""

from __future__ import annotations

import numpy as np

from testbed.caches.keys import blake3_bytes
from testbed.caches.signature import signature


def test_signature_is_norm_digest_and_second():
    assert signature(np.array([3.0, 4.0]), "chunk", 12.9) == f"5.000_{blake3_bytes(b'chunk').hex()[:16]}_12"


def test_a_normalised_embedding_adds_nothing():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(50, 384)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert len({signature(v, "chunk", 0.0) for v in vectors}) == 1


def test_two_updates_in_one_second_share_a_signature_and_a_second_boundary_breaks_it():
    one = np.array([1.0])
    assert signature(one, "chunk", 5.01) == signature(one, "chunk", 5.99)
    assert signature(one, "chunk", 5.99) != signature(one, "chunk", 6.0)
