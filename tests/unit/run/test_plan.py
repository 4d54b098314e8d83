from __future__ import annotations

from collections.abc import Mapping

from testbed.core import digest
from testbed.core.types import Doc, Gold, Op, Query, Upgrade
from testbed.run import plan

OLD, NEW, OTHER = Doc("d", "old", "a"), Doc("d", "new", "a", 2), Doc("e", "other", "a")
ASK = Query("q", "how long?", "a", "t-1")
OPS = (
    Op(0, 0.0, "load", (OLD, OTHER)),
    Op(1, 1.0, "ask", ASK),
    Op(2, 2.0, "upsert", NEW),
    Op(3, 3.0, "ask", ASK),
    Op(4, 4.0, "delete", OTHER),
    Op(5, 5.0, "upgrade", Upgrade("minilm")),
    Op(6, 6.0, "ask", ASK),
)


class Versions:
    """A corpus whose truth is just how the documents stand."""

    def gold(self, op: int, query: Query, versions: Mapping[str, int]) -> Gold:
        return Gold(op, query.id, query.tenant, "s", {}, accept=(str(dict(versions)),))


def test_the_truth_follows_the_documents() -> None:
    found = plan.truth(Versions(), OPS)  # type: ignore[arg-type]
    assert {op: gold.accept for op, gold in found.items()} == {
        1: ("{'d': 1, 'e': 1}",),
        3: ("{'d': 2, 'e': 1}",),
        6: ("{'d': 2}",),
    }


def test_every_op_is_a_row_and_texts_go_by_digest() -> None:
    rows = plan.op_rows(OPS)
    assert [(r.index, r.do, r.id, r.version) for r in rows] == [
        (0, "load", "2 documents", 0),
        (1, "ask", "q", 0),
        (2, "upsert", "d", 2),
        (3, "ask", "q", 0),
        (4, "delete", "e", 1),
        (5, "upgrade", "minilm", 0),
        (6, "ask", "q", 0),
    ]
    assert (rows[1].session, rows[1].text) == ("t-1", digest.of_text("how long?"))


def test_revisions_are_dated_by_the_op_that_brought_them() -> None:
    assert [(r.doc_id, r.version, r.introduced) for r in plan.doc_rows(OPS)] == [("d", 1, 0), ("e", 1, 0), ("d", 2, 2)]
    assert set(plan.texts(OPS)) == {"old", "new", "other", "how long?"}
