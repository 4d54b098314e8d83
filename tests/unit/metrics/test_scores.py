from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import pytest

from testbed.core.evidence import Evidence
from testbed.core.types import Claim
from testbed.metrics.faithfulness import ClaimReader, Quadrants
from testbed.metrics.scores import mean, names, score_asks, table
from tests.histories.trace import DictStack, evidence


class SaidPlainly:
    """Claims written as ``entity|attribute|value|unit``, one a line."""

    reads = 0

    def extract(self, text: str, lexicon: Mapping[str, Any]) -> tuple[Claim, ...]:
        self.reads += 1
        return tuple(Claim(*line.split("|")) for line in text.splitlines() if line.count("|") == 3)

    def supported(self, claim: Claim, context_claims: Sequence[Claim]) -> bool:
        return claim in context_claims

    def equals(self, claim: Claim, truth: Claim) -> bool:
        return claim == truth


NOW, BEFORE = "gateway|timeout|30|s", "gateway|timeout|30|ms"


def ask(answer: str, source: str, *, abstained: bool = False, version: int = 2) -> Evidence:
    """One ask of acme over doc d (v1: 30 ms, now v2: 30 s)."""
    rows = [
        {"op": {"do": "load"}},
        {"doc": {"doc_id": "x", "tenant": "", "text": "@shared by all"}},
        {"doc": {"doc_id": "d", "tenant": "acme", "text": f"@{BEFORE}"}},
        {"op": {"do": "upsert", "id": "d", "version": 2}},
        {"doc": {"doc_id": "d", "tenant": "acme", "version": 2, "text": f"@{NOW}"}},
        {"op": {"do": "ask", "id": "q", "tenant": "acme", "text": "@how long?"}},
        {"gold": {"relevant": {"d": 1}, "claim": NOW.split("|"), "accept": ["30 s"]}},
        {
            "event": {
                "layer": "stack",
                "kind": "answer",
                "value": f"@{answer}",
                "data": {"ranking": ["x", "d"], "sources": [["d", version, f"@{source}"]], "abstained": abstained},
            }
        },
    ]
    return evidence(rows)


def scored(found: Evidence) -> Any:
    (row,) = score_asks(found, reader=ClaimReader(SaidPlainly(), {}))
    return row


def test_a_true_answer_from_the_current_source() -> None:
    row = scored(ask(NOW, NOW))
    assert row.metrics["MRR@5"] == 0.5
    assert (row.metrics["faithful"], row.metrics["true"], row.stale, row.foreign) == (1.0, 1.0, False, False)


def test_a_stale_answer_is_faithful_and_not_true() -> None:
    row = scored(ask(BEFORE, BEFORE, version=1))
    assert (row.metrics["faithful"], row.metrics["true"], row.stale) == (1.0, 0.0, True)
    assert table([row]) == Quadrants(faithful_untrue=1, gap=1.0)


def test_an_invented_truth_is_true_and_not_faithful() -> None:
    row = scored(ask(NOW, BEFORE, version=1))
    assert (row.metrics["faithful"], row.metrics["true"]) == (0.0, 1.0)


def test_an_abstention_is_not_true_and_its_faithfulness_is_unscored() -> None:
    row = scored(ask("I do not know", NOW, abstained=True))
    assert isnan(row.metrics["faithful"])
    assert (row.metrics["true"], row.abstained, row.value("abstained")) == (0.0, True, 1.0)
    assert table([row]).abstained == 1


def test_an_ask_without_an_answer_counts_zero_and_not_as_unscored() -> None:
    row = scored(replace(ask(NOW, NOW), events=()))
    assert (row.metrics["MRR@5"], row.metrics["true"], row.stale, row.foreign) == (0.0, 0.0, None, None)


def test_without_a_ledger_nothing_is_called_faithful() -> None:
    (row,) = score_asks(ask("It is 30 s.", "the timeout: 30 s"))
    assert "faithful" not in row.metrics
    assert "true" not in row.metrics
    assert (row.metrics["answer-containment"], row.metrics["lexical-grounding"]) == (1.0, 1.0)
    assert table([row]) == Quadrants(gap=pytest.approx(float("nan"), nan_ok=True))


def test_an_abstention_contains_no_answer() -> None:
    (row,) = score_asks(ask("30 s is not known", "30 s", abstained=True))
    assert row.metrics["answer-containment"] == 0.0
    assert isnan(row.metrics["lexical-grounding"])


def test_a_mean_leaves_out_what_is_unscored_and_counts_it() -> None:
    rows = [scored(ask(NOW, NOW)), scored(ask("?", NOW, abstained=True)), scored(ask(BEFORE, NOW))]
    assert mean(rows, "faithful") == (0.5, 1)
    assert mean(rows, "true") == (pytest.approx(1 / 3), 0)
    assert mean([], "true")[1] == 0


def test_each_text_is_read_once_for_all_arms() -> None:
    language = SaidPlainly()
    reader = ClaimReader(language, {})
    for arm in ("clean", "faulty"):
        score_asks(replace(ask(NOW, NOW), arm=arm), reader=reader)
    assert language.reads == 1


def test_a_row_of_the_table_holds_labels_and_floats() -> None:
    row = scored(ask(NOW, NOW)).row("clean")
    assert list(row)[:4] == ["arm", "op", "query", "tenant"]
    assert all(isinstance(value, float) for value in list(row.values())[4:])
    assert names([scored(ask(NOW, NOW))]) == tuple(list(row)[4:])


def test_via_is_the_first_layer_that_hit() -> None:
    stack = DictStack(["acme"])
    stack.ask("acme", "how long?")
    stack.ask("acme", "how long?")
    stack.lose("answer")
    stack.ask("acme", "how long?")
    for layer in ("answer", "retrieval"):
        stack.lose(layer)
    stack.ask("acme", "how long?")
    for layer in ("answer", "retrieval", "embedding", "text"):
        stack.lose(layer)
    stack.ask("acme", "how long?")
    assert [row.via for row in score_asks(stack.evidence())] == ["text", "answer", "retrieval", "embedding", "none"]


def test_a_canary_in_the_answer_is_foreign_whatever_the_sources_say() -> None:
    found = ask(f"{NOW} CANARY-B", NOW)
    assert scored(found).foreign is False
    assert scored(replace(found, canaries={"acme": "CANARY-A", "birch": "CANARY-B"})).foreign is True
