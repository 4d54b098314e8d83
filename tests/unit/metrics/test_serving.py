from __future__ import annotations

from math import isnan
from typing import Any

import pytest

from testbed.core.history import History
from testbed.metrics.serving import Latency, Serving, layer_of, rates, serve
from tests.histories.trace import DictStack, evidence

TENANT, EPOCH = frozenset({"tenant"}), frozenset({"epoch"})


def served(stack: DictStack) -> Serving:
    return serve(History(stack.evidence()))


def layer(serving: Serving, name: str) -> Any:
    return next(found for found in serving.layers if found.layer == name)


def test_a_correct_cache_serves_valid_hits_only() -> None:
    stack = DictStack(["acme", "birch"])
    for tenant in ("acme", "birch", "acme", "acme"):
        stack.ask(tenant, "how long?")
    answer = layer(served(stack), "answer")
    assert (answer.requests, answer.hits, answer.fresh, answer.poisoned) == (4, 2, 2, 0)
    assert answer.hit_rate == answer.valid_hit_rate == 0.5


def test_a_leaking_cache_has_the_better_hit_rate_and_the_worse_valid_one() -> None:
    stack = DictStack(["acme", "birch"], {"answer": TENANT})
    for tenant in ("acme", "birch", "acme", "acme"):
        stack.ask(tenant, "how long?")
    answer = layer(served(stack), "answer")
    assert (answer.hits, answer.fresh, answer.foreign) == (3, 2, 1)
    assert answer.hit_rate == 0.75
    assert answer.valid_hit_rate == 0.5
    assert answer.poisoned == 1


def test_an_entry_of_a_replaced_revision_is_a_stale_hit() -> None:
    stack = DictStack(["acme"], {"answer": EPOCH})
    stack.ask("acme", "how long?")
    stack.upsert("acme")
    stack.ask("acme", "how long?")
    assert [s.outcome for s in served(stack).lookups if s.layer == "answer"] == ["miss", "stale"]


def test_a_hit_across_epochs_whose_documents_did_not_change_is_valid() -> None:
    stack = DictStack(["acme"], {"answer": EPOCH})
    stack.ask("acme", "how long?")
    stack.rows.append({"op": {"do": "upsert", "id": "unrelated", "tenant": "acme", "version": 1}})
    stack.version["acme"] += 1  # the epoch moves, the document that was read does not
    stack.ask("acme", "how long?")
    assert [s.outcome for s in served(stack).lookups if s.layer == "answer"] == ["miss", "fresh"]


def test_an_answer_made_from_a_poisoned_entry_is_poisoned_under_its_right_key() -> None:
    stack = DictStack(["acme", "birch"], {"embedding": TENANT})
    for tenant in ("acme", "birch", "birch"):
        stack.ask(tenant, "how long?")
    serving = served(stack)
    assert [s.outcome for s in serving.lookups if s.layer == "embedding"] == ["miss", "foreign"]
    assert [s.outcome for s in serving.lookups if s.layer == "answer"] == ["miss", "miss", "foreign"]
    assert layer(serving, "answer").poisoned == 1
    assert layer(serving, "retrieval").poisoned == 1
    # One entry of the embedding cache, written at op 1, made a ranking and an answer wrong.
    assert serving.derived == {("embedding", 1): 2}


def test_an_answer_found_over_vectors_of_two_encoders_is_wrong_when_it_is_served_again() -> None:
    stack = DictStack(["acme"])
    stack.rows = [_other_encoder(row) for row in stack.rows]
    stack.ask("acme", "how long?")
    stack.ask("acme", "how long?")
    assert [s.outcome for s in served(stack).lookups if s.layer == "answer"] == ["miss", "wrong"]


def _other_encoder(row: dict[str, Any]) -> dict[str, Any]:
    event = row.get("event", {})
    if event.get("layer") != "index":
        return row
    return {"event": event | {"value": event["value"].replace("a" * 12, "b" * 12)}}


def test_a_near_match_between_questions_of_unknown_subject_is_neither_valid_nor_wrong() -> None:
    rows = [
        {"op": {"do": "ask", "tenant": "acme", "text": "@how long?"}},
        {"event": {"layer": "answer", "kind": "put", "key": {"text": "@how long?", "tenant": "acme"}, "value": "v"}},
        {"op": {"do": "ask", "tenant": "acme", "text": "@how far?"}},
        {"event": {"layer": "answer", "kind": "hit", "key": {"text": "@how far?", "tenant": "acme"}, "value": "v"}},
    ]
    found = serve(History(evidence(rows))).lookups
    assert [s.outcome for s in found] == ["unknown"]
    for row in (1, 4):
        rows.insert(row, {"gold": {"subject": "length"}})
    assert [s.outcome for s in serve(History(evidence(rows))).lookups] == ["fresh"]
    rows[4] = {"gold": {"subject": "distance"}}
    assert [s.outcome for s in serve(History(evidence(rows))).lookups] == ["wrong"]


def test_the_tier_that_hit_is_judged_as_the_layer_is() -> None:
    stack = DictStack(["acme", "birch"], {"answer": TENANT})
    stack.ask("acme", "how long?")
    stack.ask("birch", "how long?")
    events = [row.get("event", {}) for row in stack.rows]
    hit = next(i for i, event in enumerate(events) if (event.get("layer"), event.get("kind")) == ("answer", "hit"))
    for kind, tier in (("hit", "answer.l2"), ("miss", "answer.l1")):
        stack.rows.insert(hit, {"event": stack.rows[hit]["event"] | {"layer": tier, "kind": kind}})
    outcomes = {s.layer: s.outcome for s in served(stack).lookups if s.op == 2}
    assert outcomes == {"answer": "foreign", "answer.l1": "miss", "answer.l2": "foreign"}


def test_latencies_are_nearest_rank_quantiles_of_the_reads_in_ms() -> None:
    timings = [(i, "answer", "hit" if i % 2 else "miss", i * 1_000_000) for i in range(1, 101)]
    timings.append((1, "answer", "put", 10**12))
    found = serve(History(DictStack(["acme"]).evidence()), timings).layers[0]
    assert found.latency == Latency(50.0, 95.0, 99.0)
    assert isnan(found.hit_rate)


def test_the_latency_of_one_read_is_its_own() -> None:
    found = serve(History(DictStack(["acme"]).evidence()), [(0, "text", "hit", 1500)]).layers[0]
    assert found.latency == Latency(*[pytest.approx(0.0015)] * 3)


def test_hits_of_a_layer_are_told_by_ask_that_reached_it() -> None:
    stack = DictStack(["acme", "birch"], {"answer": TENANT})
    for tenant in ("acme", "birch", "acme", "acme"):
        stack.ask(tenant, "how long?")
    serving = served(stack)
    assert list(rates(serving, "hits[answer]").values()) == [0.0, 1.0, 1.0, 1.0]
    assert list(rates(serving, "valid hits[answer]").values()) == [0.0, 0.0, 1.0, 1.0]
    assert list(rates(serving, "bad hits[answer]").values()) == [0.0, 1.0, 0.0, 0.0]
    assert list(rates(serving, "valid hits[retrieval]").values()) == [0.0]
    assert [layer_of(m) for m in ("valid hits[answer.l1]", "hits[text]", "true", "hits")] == [
        "answer.l1",
        "text",
        "",
        "",
    ]
