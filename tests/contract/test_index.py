"""Every index equals the reference (the docstring of ``core.ports.Index``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.errors import InvalidInput
from testbed.core.ports import Index, Row, Vectors
from testbed.stores.exact import ExactIndex

DIM = 4


def faiss() -> Index:
    pytest.importorskip("faiss")
    from testbed.stores.faiss import FaissIndex

    return FaissIndex()


def chroma() -> Index:
    pytest.importorskip("chromadb")
    from testbed.stores.chroma import ChromaIndex

    return ChromaIndex.at(namespace="contract:")


EVERY = pytest.mark.parametrize(
    "make",
    [
        ExactIndex,
        pytest.param(faiss, marks=pytest.mark.faiss),
        pytest.param(chroma, marks=pytest.mark.chroma),
    ],
)
Make = Callable[[], Index]


class Edit(NamedTuple):
    do: Literal["upsert", "delete"]
    rows: tuple[Row, ...]


def unit() -> st.SearchStrategy[Vectors]:
    """Few different directions, so that exact ties are common."""
    whole = st.lists(st.integers(-2, 2), min_size=DIM, max_size=DIM).filter(any)
    return whole.map(lambda v: (np.array(v) / np.linalg.norm(v)).astype(np.float32))


def edits() -> st.SearchStrategy[list[Edit]]:
    row = st.builds(
        Row,
        st.sampled_from([f"d{i}" for i in range(12)]),
        st.integers(1, 3),
        st.sampled_from(["a", "b", ""]),
        unit(),
        st.just("maker"),
        st.just("digest"),
    )
    batch = st.lists(row, min_size=1, max_size=6).map(tuple)
    return st.lists(st.builds(Edit, st.sampled_from(["upsert", "upsert", "delete"]), batch), max_size=8)


def played(index: Index, sequence: list[Edit]) -> Index:
    for edit in sequence:
        if edit.do == "upsert":
            index.upsert(edit.rows)
        else:
            index.delete([row.doc_id for row in edit.rows])
    return index


@pytest.mark.faiss
@settings(max_examples=150, deadline=None)
@given(sequence=edits(), query=unit(), k=st.integers(1, 15), tenant=st.sampled_from(["a", "b", "", "nobody", None]))
def test_faiss_gives_what_the_reference_gives(sequence: list[Edit], query: Vectors, k: int, tenant: str | None) -> None:
    compare(faiss(), sequence, query, k, tenant)


@pytest.mark.chroma
@settings(max_examples=25, deadline=None)
@given(sequence=edits(), query=unit(), k=st.integers(1, 15), tenant=st.sampled_from(["a", "b", "", "nobody", None]))
def test_chroma_gives_what_the_reference_gives(
    sequence: list[Edit], query: Vectors, k: int, tenant: str | None
) -> None:
    compare(chroma(), sequence, query, k, tenant)


def compare(index: Index, sequence: list[Edit], query: Vectors, k: int, tenant: str | None) -> None:
    reference = played(ExactIndex(), sequence)
    played(index, sequence)
    found = index.search(query, tenant=tenant, k=k, made_by="maker")
    assert found == reference.search(query, tenant=tenant, k=k, made_by="maker")
    assert list(index.rows().items()) == list(reference.rows().items())


def row(doc_id: str, vector: list[float], tenant: str = "a", version: int = 1, dtype: Any = np.float32) -> Row:
    return Row(doc_id, version, tenant, np.array(vector, dtype=dtype), "maker", "digest")


@EVERY
def test_equal_scores_are_ordered_by_id_whatever_came_first(make: Make) -> None:
    same = [1.0, 0.0, 0.0, 0.0]
    for order in (["d1", "d2", "d3"], ["d3", "d1", "d2"]):
        index = make()
        index.upsert([row(doc_id, same) for doc_id in order])
        assert index.search(row("q", same).vector, tenant="a", k=2, made_by="m") == [("d1", 1.0), ("d2", 1.0)]


@EVERY
def test_a_search_for_one_tenant_never_sees_another_and_none_sees_all(make: Make) -> None:
    index = make()
    near, far = [1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]
    index.upsert([row("of-b", near, "b"), row("of-a", far, "a")])
    query = row("q", near).vector
    assert index.search(query, tenant="a", k=5, made_by="m") == [("of-a", 0.0)]
    assert index.search(query, tenant=None, k=5, made_by="m") == [("of-b", 1.0), ("of-a", 0.0)]
    assert index.search(query, tenant="c", k=5, made_by="m") == []


@EVERY
def test_a_row_that_moves_to_another_tenant_leaves_the_first(make: Make) -> None:
    index = make()
    index.upsert([row("d", [1.0, 0.0, 0.0, 0.0], "a", 1)])
    index.upsert([row("d", [1.0, 0.0, 0.0, 0.0], "b", 2)])
    query = row("q", [1.0, 0.0, 0.0, 0.0]).vector
    assert index.search(query, tenant="a", k=5, made_by="m") == []
    assert index.search(query, tenant="b", k=5, made_by="m") == [("d", 1.0)]
    assert [(i, r.version, r.tenant) for i, r in index.rows().items()] == [("d", 2, "b")]


@EVERY
def test_the_index_keeps_its_own_copy_of_a_vector(make: Make) -> None:
    index = make()
    mine = row("d", [1.0, 0.0, 0.0, 0.0])
    index.upsert([mine])
    mine.vector[:] = 0.0
    assert index.search(row("q", [1.0, 0.0, 0.0, 0.0]).vector, tenant="a", k=1, made_by="m") == [("d", 1.0)]


@EVERY
def test_fresh_is_empty_and_apart(make: Make) -> None:
    index = make()
    index.upsert([row("d", [1.0, 0.0, 0.0, 0.0])])
    fresh = index.fresh()
    assert fresh.rows() == {}
    fresh.upsert([row("e", [1.0, 0.0, 0.0, 0.0])])
    assert list(index.rows()) == ["d"]


@EVERY
def test_a_vector_of_another_dimension_or_type_is_refused_and_nothing_is_written(make: Make) -> None:
    index = make()
    index.upsert([row("d", [1.0, 0.0, 0.0, 0.0])])
    for bad in (row("e", [1.0, 0.0]), row("e", [1.0, 0.0, 0.0, 0.0], dtype=np.float64)):
        with pytest.raises(InvalidInput, match=r"expected \(4,\) float32"):
            index.upsert([row("f", [0.0, 1.0, 0.0, 0.0]), bad])
    assert list(index.rows()) == ["d"]
    with pytest.raises(InvalidInput, match="does not fit"):
        index.search(row("q", [1.0, 0.0]).vector, tenant="a", k=1, made_by="m")
    with pytest.raises(InvalidInput, match="k=0"):
        index.search(row("q", [1.0, 0.0, 0.0, 0.0]).vector, tenant="a", k=0, made_by="m")
