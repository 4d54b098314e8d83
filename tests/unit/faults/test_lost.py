from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core.clock import LogicalClock
from testbed.core.names import ValueNames
from testbed.core.scenario import Arm
from testbed.core.types import Doc
from testbed.faults.late import LateText
from testbed.faults.lost import DeletedAfterAdd, FailedUpserts, RebuildFails, RecordsBelieved, VectorKept
from testbed.fixes.reconcile import BuildBeside, ReconcileSweep, WriteCheck
from testbed.probes.trace import Recorder
from testbed.run.arms import changed
from testbed.run.context import RunContext
from testbed.stores.dual import Item
from tests.contract.small_stack import DOCS, Trace, WordEncoder, small_stack

EDITED = Doc("acme-gateway", "Something else entirely.", "acme", 2, kind="record")
ALL = {d.id for d in DOCS}


def played(fault: Any, *fixes: Any) -> dict[str, int]:
    """Load, wait, index again, edit, search: the version of each vector that is held."""
    clock = LogicalClock()
    ctx = RunContext(1, 1.0, clock, Recorder(Trace(), ValueNames(), clock.now))
    stack = small_stack()
    with changed(stack, Arm("x", (fault,), fixes), ctx):
        stack.upsert(DOCS)
        clock.move_to(60.0)
        stack.index_docs(stack.source.docs())
        stack.upsert([EDITED])
        stack.search(WordEncoder().encode(["timeout"], "query")[0], "acme")
        return {i: row.version for i, row in stack.index.rows().items()}


def test_what_the_store_lost_is_skipped_because_the_records_have_it() -> None:
    held = played(RecordsBelieved(share=0.5))
    assert 0 < len(held) < len(ALL)


def test_a_refused_row_is_not_there_and_an_edit_of_it_may_be() -> None:
    assert set(played(FailedUpserts(share=1.0))) == ALL  # indexed a second time, all were taken
    stack = small_stack()
    ctx = RunContext(1, 1.0, LogicalClock(), Recorder(Trace(), ValueNames(), lambda: 0.0))
    with changed(stack, Arm("x", (FailedUpserts(share=0.5),)), ctx):
        stack.upsert(DOCS)
        assert 0 < len(stack.index.rows()) < len(ALL)


def test_a_vector_is_kept_though_its_text_changed() -> None:
    assert played(VectorKept())["acme-gateway"] == 1


def test_an_updated_document_has_no_vector_when_adds_come_first() -> None:
    # All were indexed a second time, and gone when one of them was edited.
    assert played(DeletedAfterAdd()) == {"acme-gateway": 2}
    assert set(played(DeletedAfterAdd(), WriteCheck())) == ALL


def test_a_rebuild_that_deletes_first_leaves_what_it_came_to() -> None:
    assert 0 < len(played(RebuildFails(share=0.5))) < len(ALL)
    assert set(played(RebuildFails(share=0.5), BuildBeside())) == ALL


@pytest.mark.parametrize("fault", [RecordsBelieved(share=0.5), FailedUpserts(share=0.5), VectorKept(), RebuildFails()])
def test_a_sweep_brings_every_vector_to_its_current_text(fault: Any) -> None:
    assert played(fault, ReconcileSweep()) == {i: 2 if i == "acme-gateway" else 1 for i in ALL}


def test_reading_back_what_was_written_finds_what_was_refused() -> None:
    stack = small_stack()
    ctx = RunContext(1, 1.0, LogicalClock(), Recorder(Trace(), ValueNames(), lambda: 0.0))
    with changed(stack, Arm("x", (FailedUpserts(share=1.0),), (WriteCheck(),)), ctx):
        stack.upsert(DOCS)
        assert set(stack.index.rows()) == ALL


class Stores:
    """What the late fault needs of the dual stores."""

    def __init__(self, writer: Any) -> None:
        self.writer = writer

    def write(self, batch: list[Item]) -> None:
        self.writer.log.append(("whole", len(batch)))


class Writer:
    def __init__(self, texts_come_later: bool) -> None:
        self.texts_come_later = texts_come_later
        self.log: list[tuple[str, Any]] = []

    def write_vectors(self, batch: list[Item]) -> None:
        self.log.append(("vectors", len(batch)))

    def write_texts(self, batch: list[Item]) -> None:
        self.log.append(("texts", len(batch)))


@pytest.mark.parametrize(
    ("later", "log"),
    [(True, [("whole", 0), ("vectors", 0), "now 4.1", ("texts", 0)]), (False, [("whole", 0), ("whole", 0), "now 4.1"])],
)
def test_texts_come_when_their_time_has_come(later: bool, log: list[Any]) -> None:
    clock = LogicalClock()
    ctx = RunContext(1, 1.0, clock, Recorder(Trace(), ValueNames(), clock.now))
    writer = Writer(later)
    stores: Any = Stores(writer)
    with LateText().applied(SimpleNamespace(dual=stores), ctx):
        stores.deliver([])  # the first load is never late
        clock.move_to(1.0)
        stores.deliver([])
        clock.move_to(4.1)
        writer.log.append("now 4.1")  # type: ignore[arg-type]
        clock.move_to(4.2)
    assert writer.log == log and stores.deliver == stores.write
