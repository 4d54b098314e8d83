from __future__ import annotations

import numpy as np

from testbed.core.ports import Row
from testbed.fixes.partition import IndexPerTenant
from testbed.stores.exact import ExactIndex


def row(doc_id: str, tenant: str, *vector: float, version: int = 1) -> Row:
    return Row(doc_id, version, tenant, np.array(vector, dtype=np.float32), "e", "t")


def test_a_tenant_finds_its_own_rows_only_and_nobody_else_s_rows_take_a_place() -> None:
    index = IndexPerTenant(ExactIndex())
    index.upsert([row("a1", "a", 1, 0), row("b1", "b", 1, 0), row("b2", "b", 0.9, 0.1)])
    query = np.array([1, 0], dtype=np.float32)
    assert [h.doc_id for h in index.search(query, tenant="a", k=2, made_by="e")] == ["a1"]
    assert [h.doc_id for h in index.search(query, tenant="b", k=2, made_by="e")] == ["b1", "b2"]
    assert index.search(query, tenant="c", k=2, made_by="e") == []
    assert [h.doc_id for h in index.search(query, tenant=None, k=2, made_by="e")] == ["a1", "b1"]


def test_a_document_that_moves_to_another_tenant_leaves_the_first() -> None:
    index = IndexPerTenant(ExactIndex())
    index.upsert([row("d", "a", 1, 0)])
    index.upsert([row("d", "b", 1, 0, version=2)])
    query = np.array([1, 0], dtype=np.float32)
    assert index.search(query, tenant="a", k=1, made_by="e") == []
    assert [h.doc_id for h in index.search(query, tenant="b", k=1, made_by="e")] == ["d"]
    assert {i: (r.tenant, r.version) for i, r in index.rows().items()} == {"d": ("b", 2)}
    index.delete(["d", "nothing"])
    assert index.rows() == {}
