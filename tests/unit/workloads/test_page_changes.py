"""Pages withdrawn and filled late: what each workload adds to a stream."""

from __future__ import annotations

from testbed.core.types import Doc, Op, Query
from testbed.corpora.ledger import build_ledger
from testbed.run.plan import truth
from testbed.workloads.stream import Stream
from testbed.workloads.stubs import STUB, Stubs
from testbed.workloads.withdrawals import COPY, Withdrawals

LEDGER = build_ledger()
N = 60


def plain(ops: tuple[Op, ...]) -> list[Query]:
    return [op.item for op in ops if isinstance(op.item, Query)]


def test_withdrawals_ask_what_the_stream_asks_and_delete_notes() -> None:
    ops = Withdrawals(Stream(), n_deletes=12).ops(LEDGER, 1, N)
    assert plain(ops) == plain(Stream().ops(LEDGER, 1, N))
    gone = [op.item for op in ops if op.do == "delete"]
    assert len(gone) == len({d.id for d in gone if isinstance(d, Doc)}) == 12
    assert {d.kind for d in gone if isinstance(d, Doc)} == {"note"}
    assert [op.index for op in ops] == list(range(len(ops)))
    first, last = (next(i for i, op in enumerate(seq) if op.do == "delete") for seq in (ops, ops[::-1]))
    assert first > 5 and last > 5


def test_every_copy_is_loaded_before_the_first_question_and_goes_with_its_page() -> None:
    ops = Withdrawals(Stream(), n_deletes=6, copies=True).ops(LEDGER, 1, N)
    first_ask = next(op.index for op in ops if op.do == "ask")
    added = [op.item for op in ops if op.do == "upsert"]
    assert len(added) == 6 and all(op.index < first_ask for op in ops if op.do == "upsert")
    texts = {d.id: d.text for d in LEDGER.docs}
    assert all(isinstance(d, Doc) and d.text == texts[d.id.removesuffix(COPY)] for d in added)
    gone = [op.item.id for op in ops if op.do == "delete" and isinstance(op.item, Doc)]
    assert gone[1::2] == [f"{i}{COPY}" for i in gone[::2]]


def test_a_deleted_document_is_no_longer_relevant() -> None:
    asked = plain(Stream().ops(LEDGER, 1, N))[0]
    record = LEDGER.records[asked.id]
    doc = next(d for d in LEDGER.docs if d.id == record)
    ops = (
        Op(0, 0.0, "load", LEDGER.docs),
        Op(1, 1.0, "ask", asked),
        Op(2, 2.0, "delete", doc),
        Op(3, 3.0, "ask", asked),
    )
    gold = truth(LEDGER, ops)
    assert dict(gold[1].relevant) == {record: 1} and gold[3].relevant == {} and gold[3].claim is None


def test_stubs_are_filled_before_the_first_question() -> None:
    ops = Stubs(Stream()).ops(LEDGER, 1, N)
    assert isinstance(ops[0].item, tuple)
    stubs = {d.id for d in ops[0].item if d.text == STUB}
    filled = [op.item for op in ops if op.do == "upsert"]
    assert stubs and {d.id for d in filled if isinstance(d, Doc)} == stubs
    assert max(op.index for op in ops if op.do == "upsert") < min(op.index for op in ops if op.do == "ask")
    assert truth(LEDGER, ops)[ops[-1].index].relevant  # version 1 is what is true
