from __future__ import annotations

import numpy as np
import pytest

from testbed.core.ports import Row
from testbed.stores.exact import ExactIndex

pytest.importorskip("faiss")
from testbed.stores.faiss import FaissIndex

pytestmark = pytest.mark.faiss
DIM = 384


def rows(n: int, seed: int = 0, version: int = 1) -> list[Row]:
    """Vectors in tight clusters, as one embedding model makes of templated texts, with exact duplicates."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(10, DIM))
    vectors = centres[rng.integers(0, 10, n)] + 0.05 * rng.normal(size=(n, DIM))
    vectors[::7] = vectors[0]
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return [Row(f"d{i:04}", version, f"t{i % 3}", v, "maker", "digest") for i, v in enumerate(unit)]


def test_rankings_and_scores_equal_the_reference_on_real_dimensions() -> None:
    index, reference = FaissIndex(), ExactIndex()
    for held in (index, reference):
        held.upsert(rows(600))
    for query in rows(40, seed=1):
        for tenant in ("t0", "t2", None):
            for k in (1, 5, 40):
                assert index.search(query.vector, tenant=tenant, k=k, made_by="m") == reference.search(
                    query.vector, tenant=tenant, k=k, made_by="m"
                )


def test_many_replacements_and_deletions_leave_only_what_is_in_force() -> None:
    index, reference = FaissIndex(), ExactIndex()
    for round_ in range(6):
        some = rows(300, seed=round_, version=round_)
        gone = [r.doc_id for r in some[round_::6]]
        for held in (index, reference):
            held.upsert(some)
            held.delete(gone)
    assert list(index.rows().items()) == list(reference.rows().items())
    for query in rows(20, seed=9):
        assert index.search(query.vector, tenant="t1", k=5, made_by="m") == reference.search(
            query.vector, tenant="t1", k=5, made_by="m"
        )
    # Tombstones do not pile up: six rounds of 100 rows a tenant, and never more than twice what is live.
    assert all(len(p._ids) <= 2 * len(p.live) + 64 for p in index._partitions.values())


def test_the_order_of_insertion_does_not_show() -> None:
    forward, backward = FaissIndex(), FaissIndex()
    some = rows(200)
    forward.upsert(some)
    for row in reversed(some):
        backward.upsert([row])
    for query in some[:20]:
        assert forward.search(query.vector, tenant=None, k=10, made_by="m") == backward.search(
            query.vector, tenant=None, k=10, made_by="m"
        )
