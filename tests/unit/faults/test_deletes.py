from __future__ import annotations

import dataclasses

import pytest

from testbed.core.scenario import Arm
from testbed.core.types import Doc, Key, Query
from testbed.faults.deletes import AppendedVersion, EmptyMeansAll, SharedHashSlot, WrongSelector
from testbed.fixes.reconcile import ReconcileSweep, TombstonesOnRead
from testbed.run.arms import changed
from testbed.stacks.pipeline import Pipeline
from tests.contract.small_stack import DOCS, small_stack
from tests.contract.test_changes import context

GONE = "acme-mailer"
QUERY = Query("q", "What is the request timeout of the mailer?", "acme")
NEW = Doc("acme-mailer", "The request timeout of the mailer is 77 ms.", "acme", 2, kind="record")


def deleted(*changes: object, ids: tuple[str, ...] = (GONE,), extra: tuple[Doc, ...] = ()) -> Pipeline:
    stack = small_stack()
    faults = tuple(c for c in changes if not hasattr(c, "layers") and "fixes" not in type(c).__module__)
    fixes = tuple(c for c in changes if c not in faults)
    with changed(stack, Arm("x", faults, fixes), context()):  # type: ignore[arg-type]
        stack.upsert([*DOCS, *extra])
        for doc_id in ids:
            stack.delete([doc_id])
        stack.answer_now = stack.ask(QUERY)  # type: ignore[attr-defined]
        stack.held = set(stack.index.rows())  # type: ignore[attr-defined]
    return stack


def test_a_delete_by_a_selector_that_matches_nothing_deletes_nothing() -> None:
    stack = deleted(WrongSelector("index"), WrongSelector("text"))
    assert stack.answer_now.ranking[0] == GONE  # type: ignore[attr-defined]
    assert "11 ms" in stack.answer_now.text  # type: ignore[attr-defined]
    assert stack.layers["text"].get(Key.of(doc=GONE)) is not None


@pytest.mark.parametrize("fix", [ReconcileSweep(), TombstonesOnRead()], ids=lambda f: f.name)
def test_a_fix_takes_the_document_out_of_every_ranking(fix: object) -> None:
    stack = deleted(WrongSelector("index"), WrongSelector("text"), fix)
    assert GONE not in stack.answer_now.ranking  # type: ignore[attr-defined]
    assert len(stack.answer_now.ranking) == 3  # type: ignore[attr-defined]


def test_of_two_documents_of_one_text_one_stays() -> None:
    copy = dataclasses.replace(next(d for d in DOCS if d.id == GONE), id=f"{GONE}-copy")
    both = deleted(SharedHashSlot(), ids=(GONE, copy.id), extra=(copy,))
    assert both.held & {GONE, copy.id} == {GONE}  # type: ignore[attr-defined]


def test_an_empty_list_stands_for_all_documents_of_the_tenant() -> None:
    held = deleted(EmptyMeansAll(share=1.0)).held  # type: ignore[attr-defined]
    assert held == {d.id for d in DOCS if d.tenant == "birch"}
    swept = deleted(EmptyMeansAll(share=1.0), ReconcileSweep()).held  # type: ignore[attr-defined]
    assert swept == {d.id for d in DOCS} - {GONE}


def updated(*fixes: object) -> tuple[tuple[str, ...], list[str]]:
    stack = small_stack()
    with changed(stack, Arm("x", (AppendedVersion(),), fixes), context()):  # type: ignore[arg-type]
        stack.upsert(DOCS)
        stack.upsert([NEW])
        answer = stack.ask(QUERY)
        return answer.ranking, [s.text for s in answer.sources]


def test_the_old_version_is_found_and_read_beside_the_new_one() -> None:
    ranking, texts = updated()
    assert {"acme-mailer", "acme-mailer@1"} < set(ranking)
    assert sum("timeout of the mailer" in t for t in texts) == 2


def test_a_sweep_knows_an_id_that_the_record_does_not_have() -> None:
    ranking, texts = updated(ReconcileSweep())
    assert "acme-mailer@1" not in ranking and "acme-mailer" in ranking
    assert [t for t in texts if "timeout of the mailer" in t] == [NEW.text]
