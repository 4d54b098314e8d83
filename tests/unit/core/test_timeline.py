from __future__ import annotations

from testbed.core.timeline import Timeline
from tests.histories.trace import evidence

ROWS = [
    {"op": {"do": "load"}},
    {"doc": {"doc_id": "d", "tenant": "acme", "text": "@one"}},
    {"op": {"do": "ask"}},
    {"op": {"do": "upsert", "id": "d", "version": 2}},
    {"doc": {"doc_id": "d", "tenant": "acme", "version": 2, "text": "@two"}},
    {"op": {"do": "delete", "id": "d"}},
    {"op": {"do": "ask"}},
    {"op": {"do": "upsert", "id": "d", "version": 1}},
]


def test_a_revision_is_current_from_its_own_op_until_the_next_change() -> None:
    found = Timeline(evidence(ROWS))
    versions = [row.version if (row := found.current("d", op)) else None for op in range(7)]
    assert versions == [1, 1, 2, None, None, 1, 1]
    assert [found.since("d", op) for op in range(7)] == [0, 0, 2, 3, 3, 5, 5]


def test_it_agrees_with_the_live_versions_of_the_evidence() -> None:
    known = evidence(ROWS[:-1])  # the last row brings back a revision, which the evidence tells by its ops only
    found = Timeline(known)
    for op, live in known.versions():
        row = found.current("d", op.index)
        assert live.get("d") == (None if row is None else row.version)


def test_an_unknown_document_is_never_current() -> None:
    found = Timeline(evidence(ROWS))
    assert (found.current("x", 3), found.since("x", 3), found.tenant("x")) == (None, -1, None)
    assert found.tenant("d") == "acme"


def test_texts_of_all_revisions_are_known() -> None:
    known = evidence(ROWS)
    found = Timeline(known)
    assert [found.has_text("d", row.text) for row in known.docs.values()] == [True, True]
    assert not found.has_text("d", "another")
