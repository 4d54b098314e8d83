from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from testbed.core.ports import Hit, Row, RowInfo
from testbed.core.scenario import Arm
from testbed.faults.batch import BATCH, BatchShift
from testbed.fixes.batch import BatchOfOne, SelfSearch
from testbed.run.arms import changed
from testbed.stores.exact import ExactIndex
from tests.contract.small_stack import small_stack
from tests.contract.test_changes import context

N = 12


class Seen(ExactIndex):
    """An index that tells which vectors it has."""

    def vectors(self) -> dict[str, Any]:
        return {i: row.vector for i, row in self._rows.items()}


def rows(made_by: str = "words-1") -> list[Row]:
    return [Row(f"d{n:02d}", 1, "acme", np.eye(N, dtype=np.float32)[n], made_by, f"t{n}") for n in range(N)]


def written(fault: BatchShift, *fixes: object, times: int = 1) -> dict[str, int]:
    """By document, the direction of the vector that it is known by."""
    stack, index = small_stack(), Seen()
    stack.index = index
    with changed(stack, Arm("x", (fault,), fixes), context()):  # type: ignore[arg-type]
        for _ in range(times):
            stack.index.upsert(rows())
    return {i: int(np.argmax(v)) for i, v in index.vectors().items()}


RIGHT = {f"d{n:02d}": n for n in range(N)}


def test_what_comes_after_a_vector_that_was_left_out_moves_up_by_one() -> None:
    fault = BatchShift("skipped", 0.3)
    bad = [n for n in range(N) if context().affects(fault.name, f"d{n:02d}", share=fault.share)]
    assert 0 < len(bad) < N // 2
    usable = [n for n in range(N) if n not in bad]
    assert list(written(fault).values()) == [*usable, *range(len(usable), N)]


def test_computed_vectors_come_before_cached_ones_when_documents_are_indexed_again() -> None:
    assert written(BatchShift("merged", 0.5)) == RIGHT  # nothing was cached
    again = written(BatchShift("merged", 0.5), times=2)
    assert again != RIGHT and sorted(again.values()) == list(range(N))
    firsts = list(again.values())
    assert firsts[0] != 0 or firsts.index(N - 1) != N - 1


@pytest.mark.parametrize("how", ["zeroed-tail", "mixed"])
def test_a_vector_is_not_what_it_would_be_alone(how: Any) -> None:
    stack, index = small_stack(), Seen()
    stack.index = index
    with changed(stack, Arm("x", (BatchShift(how, 1.0),)), context()):
        stack.index.upsert(rows())
        in_a_batch = index.vectors()
        for row in rows():
            stack.index.upsert([row])
        assert all(np.array_equal(index.vectors()[r.doc_id], r.vector) for r in rows())
    assert sum(not np.array_equal(in_a_batch[r.doc_id], r.vector) for r in rows()) >= N - BATCH // 8


@pytest.mark.parametrize("fix", [SelfSearch(), BatchOfOne()], ids=lambda f: f.name)
@pytest.mark.parametrize("how", ["skipped", "merged", "zeroed-tail", "mixed"])
def test_a_fix_gives_every_document_its_own_vector(how: Any, fix: object) -> None:
    assert written(BatchShift(how, 0.5), fix, times=2) == RIGHT


def test_a_sample_misses_what_lies_between() -> None:
    class Counting(ExactIndex):
        n_searches = 0

        def search(self, vector: Any, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
            Counting.n_searches += 1
            return super().search(vector, tenant=tenant, k=k, made_by=made_by)

        def rows(self) -> Mapping[str, RowInfo]:
            return super().rows()

    stack = small_stack()
    stack.index = Counting()
    with changed(stack, Arm("x", (), (SelfSearch(every=4),)), context()):
        stack.index.upsert(rows())
    assert Counting.n_searches == N // 4
