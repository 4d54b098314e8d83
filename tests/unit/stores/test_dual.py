"""The audit names every document whose halves do not belong together, and no other."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.core import digest
from testbed.core.ports import Row
from testbed.stores.dual import Item, Text, Wrong, audit, item, lost
from testbed.stores.exact import ExactIndex


def pair(doc_id: str, version: int) -> Item:
    text = f"{doc_id} as of {version}"
    vector = np.array([1.0, 0.0], dtype=np.float32)
    return item(Row(doc_id, version, "a", vector, "encoder", digest.of_text(text)), text)


def stores(vectors: list[Item], texts: list[Item]) -> tuple[ExactIndex, dict[str, Text]]:
    index = ExactIndex()
    index.upsert([i.row for i in vectors])
    return index, {i.text.doc_id: i.text for i in texts}


@pytest.mark.parametrize(
    ("vectors", "texts", "found"),
    [
        ([pair("d", 1)], [pair("d", 1)], ()),
        ([pair("d", 2)], [pair("d", 1)], (Wrong("d", "text-behind", 2, 1),)),
        ([pair("d", 1)], [pair("d", 2)], (Wrong("d", "vector-behind", 1, 2),)),
        ([pair("d", 1)], [], (Wrong("d", "no-text", 1, None),)),
        ([], [pair("d", 1)], (Wrong("d", "no-vector", None, 1),)),
        ([], [], ()),
    ],
)
def test_each_way_to_be_wrong_has_its_name(vectors: list[Item], texts: list[Item], found: tuple[Wrong, ...]) -> None:
    assert audit(*stores(vectors, texts)) == found


def test_equal_versions_of_different_texts_are_wrong() -> None:
    """A version counter that started again meets itself: contents are compared, not numbers."""
    index, _texts = stores([pair("d", 1)], [])
    assert audit(index, {"d": Text("d", 1, "a", "another text under the same number")}) == (
        Wrong("d", "vector-behind", 1, 1),
    )


def test_lost_names_what_was_acknowledged_and_is_nowhere() -> None:
    both = [pair("kept", 2), pair("behind", 1)]
    acknowledged = [pair("kept", 1), pair("kept", 2), pair("behind", 1), pair("behind", 2), pair("gone", 1)]
    assert lost(*stores(both, both), acknowledged) == (
        Wrong("behind", "lost", 1, 1),
        Wrong("gone", "lost", None, None),
    )


def test_one_store_that_holds_the_new_version_is_not_a_loss() -> None:
    assert lost(*stores([pair("d", 2)], [pair("d", 1)]), [pair("d", 2)]) == ()


def test_a_wrong_document_tells_its_story() -> None:
    assert Wrong("doc:7", "text-behind", 2, 1).story() == "index doc:7 v2, text doc:7 v1: text-behind"
