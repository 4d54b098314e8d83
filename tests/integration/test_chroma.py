from __future__ import annotations

import gc

import pytest

from testbed.core.errors import InvalidInput, Unavailable
from testbed.stores.exact import ExactIndex
from tests.integration.test_faiss import rows

pytest.importorskip("chromadb")
from testbed.stores.chroma import ChromaIndex

pytestmark = pytest.mark.chroma


def collections(index: ChromaIndex) -> set[str]:
    return {c.name for c in index._client.list_collections()}


def test_the_same_data_built_twice_gives_the_reference_both_times() -> None:
    reference = ExactIndex()
    reference.upsert(rows(450))
    queries = [r.vector for r in rows(60, seed=1)]
    expected = [reference.search(q, tenant="t1", k=5, made_by="m") for q in queries]
    for _ in range(2):
        index = ChromaIndex.at()
        index.upsert(rows(450))
        assert [index.search(q, tenant="t1", k=5, made_by="m") for q in queries] == expected
        index.close()


def test_two_indexes_of_one_process_share_nothing_and_close_removes_only_the_own() -> None:
    one, two = ChromaIndex.at(namespace="testbed:x:"), ChromaIndex.at(namespace="testbed:x:")
    one.upsert(rows(9))
    two.upsert(rows(6))
    assert (len(one.rows()), len(two.rows())) == (9, 6)
    before = collections(two)
    one.close()
    assert one.rows() == {}
    assert len(before - collections(two)) == 3
    assert len(two.rows()) == 6
    two.close()
    two.close()  # closing twice is no error


def test_an_index_that_nobody_closed_takes_its_collections_along() -> None:
    keeper = ChromaIndex.at()
    lost = ChromaIndex.at(namespace="testbed:lost:")
    lost.upsert(rows(3))
    assert any("lost" in name for name in collections(keeper))
    del lost
    gc.collect()
    assert not any("lost" in name for name in collections(keeper))


def test_a_closed_index_can_be_filled_again_also_with_another_dimension() -> None:
    index = ChromaIndex.at()
    index.upsert(rows(3))
    index.close()
    index.upsert([r._replace(vector=r.vector[:8]) for r in rows(3)])
    assert len(index.rows()) == 3
    index.close()


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    with pytest.raises(Unavailable, match=r"chroma is not reachable at 127\.0\.0\.1:9 \(CHROMA_URL\)"):
        ChromaIndex.at("http://user:secret@127.0.0.1:9")
    for address in ("127.0.0.1:8000", "chroma", "http://[", "http://host:port", "ftp://host"):
        with pytest.raises(InvalidInput, match="expected http://host:port"):
            ChromaIndex.at(address)
