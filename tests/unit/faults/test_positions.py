"""The real index closes the gap of a removed vector; what the map beside it then says."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.core.ports import Row
from testbed.core.scenario import Arm
from testbed.faults.positions import PositionalIds
from testbed.fixes.positions import FullRemap, StableIds
from testbed.run.arms import changed
from testbed.stores.exact import ExactIndex
from testbed.stores.positional import SideMap
from tests.contract.small_stack import small_stack
from tests.contract.test_changes import context

IDS = ("a", "b", "c", "d")


def row(doc_id: str, place: int, version: int = 1) -> Row:
    """A document whose vector points in a direction of its own."""
    return Row(doc_id, version, "acme", np.eye(8, dtype=np.float32)[place], "words-1", f"{doc_id}{version}")


def found(index: object, place: int) -> list[str]:
    """What a search for the vector of this direction finds as its own."""
    hits = index.search(np.eye(8, dtype=np.float32)[place], tenant="acme", k=4, made_by="words-1")  # type: ignore[attr-defined]
    return [h.doc_id for h in hits if h.score == 1.0]


def after_deleting_b(*fixes: object, level: float = 1.0) -> list[list[str]]:
    stack = small_stack()
    stack.blank_index = ExactIndex
    with changed(stack, Arm("x", (PositionalIds(),), fixes), context(level)):  # type: ignore[arg-type]
        stack.index.upsert([row(i, n) for n, i in enumerate(IDS)])
        stack.index.delete(["b"])
        return [found(stack.index, n) for n in range(len(IDS))]


def test_each_later_position_names_the_document_before_it() -> None:
    # b's vector is gone; c's is where b was, which no document has; d's is where c was; nothing is where d was.
    assert after_deleting_b() == [["a"], [], [], ["c"]]


@pytest.mark.parametrize("fix", [StableIds(), FullRemap()], ids=lambda f: f.name)
def test_a_fix_finds_every_document_by_its_own_vector(fix: object) -> None:
    assert after_deleting_b(fix) == [["a"], [], ["c"], ["d"]]


def test_level_zero_deletes_what_it_is_told() -> None:
    assert after_deleting_b(level=0.0) == [["a"], [], ["c"], ["d"]]


def test_an_add_that_was_refused_shifts_those_that_come_later() -> None:
    stack = small_stack()
    with changed(stack, Arm("x", (PositionalIds("add"),)), context()):
        stack.index.upsert([row(i, n) for n, i in enumerate(IDS)])
        stack.index.upsert([row("b", 4, 2)])
        stack.index.upsert([row("c", 5, 2)])
        assert found(stack.index, 4) == ["b", "c"]  # c has the place of b's second vector
        assert found(stack.index, 5) == []


def test_a_map_that_is_closed_like_the_index_is_right() -> None:
    side = SideMap(8, counts_map=False)
    side.add([row(i, n) for n, i in enumerate(IDS)])
    side.forget("b", compacts=True)
    assert {doc: int(v.argmax()) for doc, v in side.resolved().items()} == {"a": 0, "c": 2, "d": 3}
