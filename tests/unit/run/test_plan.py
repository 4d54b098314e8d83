from __future__ import annotations

from collections.abc import Mapping

import pytest

from testbed.core import digest
from testbed.core.errors import InvalidInput
from testbed.core.types import Doc, Gold, Op, Query, Upgrade
from testbed.run import plan, scenarios
from testbed.run.settings import Settings

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


LAYERS = ("answer", "retrieval")


def arms(*names: str) -> list[tuple[str, list[str], list[str], tuple[str, ...]]]:
    variant = scenarios.load("tenant-leak").variants[0]
    found = plan.chosen(variant, Settings("tenant-leak", arms=names), LAYERS)
    return [(a.name, [f.name for f in a.faults], [f.name for f in a.fixes], a.bypass) for a in found]


def test_arms_that_no_variant_lists_are_found_by_their_full_name() -> None:
    fault = scenarios.load("tenant-leak").variants[0].faults[0].name
    assert arms("clean-without:answer", "faulty+re-embed+hard-partition-without:answer+retrieval", "faulty") == [
        ("clean-without:answer", [], [], ("answer",)),
        (
            "faulty+re-embed+hard-partition-without:answer+retrieval",
            [fault],
            ["re-embed", "hard-partition"],
            ("answer", "retrieval"),
        ),
        ("faulty", [fault], [], ()),
    ]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fauty", "unknown arm 'fauty'; did you mean 'faulty'"),
        ("faulty+hard-partitions", "unknown fix 'hard-partitions'; did you mean 'hard-partition'"),
        ("faulty-without:answers", "unknown layer 'answers'; did you mean 'answer'"),
    ],
)
def test_an_arm_of_parts_that_are_not_there_says_what_is(name: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        arms(name)
