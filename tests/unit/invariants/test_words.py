from __future__ import annotations

from testbed.core.history import History
from testbed.invariants import words
from testbed.invariants.isolation import NoCrossTenant
from testbed.invariants.losses import DictWithLosses
from tests.histories.trace import evidence


def test_a_text_is_quoted_on_one_line_and_sends_nothing_to_the_terminal() -> None:
    assert words.quote("a\n b\t c") == '"a b c"'
    assert words.quote("x" * 200) == '"' + "x" * 89 + '…"'
    assert words.quote("red \x1b[31m and \u202e back") == '"red \\u001b[31m and \\u202e back"'


def test_an_op_that_is_no_ask_is_told_as_what_it_is() -> None:
    history = History(evidence([{"op": {"do": "load"}}, {"op": {"do": "upsert", "id": "d"}}]))
    assert words.asked(history, 1) == 'op 1: upsert "d"'
    assert words.asked(history, 9) == "op 9"


def test_a_service_that_mistakes_who_is_asking_is_told_so_by_both_invariants() -> None:
    key = {"text": "@q", "tenant": "acme"}
    answer = {"ranking": ["b"], "sources": [], "abstained": False}
    rows = [
        {"doc": {"doc_id": "b", "tenant": "birch", "text": "@b"}},
        {"op": {"do": "ask", "tenant": "birch", "text": "@q"}},
        {"event": {"layer": "answer", "kind": "put", "key": key, "value": "B"}},
        {"op": {"do": "ask", "tenant": "acme", "text": "@q"}},
        {"event": {"layer": "answer", "kind": "hit", "key": key, "value": "B"}},
        {"event": {"layer": "stack", "kind": "answer", "value": "@b", "data": answer}},
    ]
    said = 'op 1: tenant acme asked "q" and was answered from birch\'s entry written at op 0 '
    said += "(answer cache, both under the key of tenant acme)"
    for invariant in (NoCrossTenant(), DictWithLosses()):
        verdict = invariant.check(evidence(rows))
        assert verdict.witness is not None
        assert (verdict.witness.ops, verdict.witness.story) == ((0, 1), said)
