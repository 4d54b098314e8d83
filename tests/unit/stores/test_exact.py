from __future__ import annotations

import numpy as np

from testbed.core.ports import Row
from testbed.stores.exact import ExactIndex


def row(doc_id: str, vector: list[float], tenant: str = "a") -> Row:
    return Row(doc_id, 1, tenant, np.array(vector, dtype=np.float32), "maker", "digest")


def test_scores_are_inner_products_rounded_to_a_millionth() -> None:
    index = ExactIndex()
    index.upsert([row("x", [0.6, 0.8]), row("y", [1.0, 0.0]), row("z", [-1.0, 0.0])])
    hits = index.search(np.array([1.0, 0.0], dtype=np.float32), tenant="a", k=3, made_by="m")
    assert [tuple(h) for h in hits] == [("y", 1.0), ("x", 0.6), ("z", -1.0)]


def test_scores_that_differ_by_less_than_a_millionth_are_ties() -> None:
    index = ExactIndex()
    index.upsert([row("b", [0.5000002, 0.0]), row("a", [0.5, 0.0])])
    hits = index.search(np.array([1.0, 0.0], dtype=np.float32), tenant="a", k=2, made_by="m")
    assert [tuple(h) for h in hits] == [("a", 0.5), ("b", 0.5)]


def test_a_score_of_nothing_has_no_sign() -> None:
    index = ExactIndex()
    index.upsert([row("a", [-1e-9, 0.0])])
    (hit,) = index.search(np.array([1.0, 0.0], dtype=np.float32), tenant="a", k=1, made_by="m")
    assert str(hit.score) == "0.0"


def test_the_last_of_two_rows_under_one_id_counts() -> None:
    index = ExactIndex()
    index.upsert([row("a", [1.0, 0.0]), row("a", [0.0, 1.0], tenant="b")])
    assert index.rows()["a"].tenant == "b"
    assert index.search(np.array([1.0, 0.0], dtype=np.float32), tenant="a", k=1, made_by="m") == []
