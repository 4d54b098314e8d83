from __future__ import annotations

from typing import Any

import pytest

from testbed.core.history import History, Lookup, differing, embedded_text, encoder_of, parts_of
from tests.histories.trace import evidence


def event(kind: str, value: str = "", layer: str = "answer", **key: str) -> dict[str, Any]:
    return {"event": {"layer": layer, "kind": kind, "key": key, "value": value}}


def ask(tenant: str = "acme", text: str = "@q", **op: Any) -> dict[str, Any]:
    return {"op": {"do": "ask", "tenant": tenant, "text": text, **op}}


def last(*rows: dict[str, Any]) -> tuple[History, Lookup]:
    history = History(evidence(rows))
    return history, history.lookups[-1]


def test_a_hit_is_paired_with_the_last_write_under_its_key() -> None:
    rows = [ask(), event("put", "A", t="1"), ask(), event("put", "A", t="1"), ask()]
    history, hit = last(*rows, event("hit", "A", t="1"))
    assert hit.write is not None
    assert (hit.write.op, hit.own, hit.live, hit.differs) == (1, True, True, ())
    assert history.lawful(hit) is True


def test_a_hit_from_elsewhere_is_paired_with_the_write_whose_key_is_nearest() -> None:
    rows = [ask(), event("put", "A", t="2", k="9"), ask(), event("put", "A", t="2", k="5"), ask()]
    history, hit = last(*rows, event("hit", "A", t="1", k="5"))
    assert hit.write is not None
    assert (hit.write.op, hit.own, hit.differs) == (1, False, ("t",))
    assert history.lawful(hit) is False


def test_of_two_writes_as_near_the_live_and_then_the_latest_is_taken() -> None:
    rows = [ask(), event("put", "A", t="2"), ask(), event("put", "A", t="3"), event("delete", t="3"), ask()]
    assert last(*rows, event("hit", "A", t="1"))[1].write.op == 0  # type: ignore[union-attr]
    rows += [event("put", "A", t="4"), ask()]
    assert last(*rows, event("hit", "A", t="1"))[1].write.op == 2  # type: ignore[union-attr]


def test_a_value_that_many_questions_share_is_read_from_the_one_that_asks_the_same() -> None:
    """Abstentions are all alike: the latest of them is not where a near match came from."""
    rows = [
        ask(text="@how long?"), {"gold": {"subject": "length"}}, event("put", "none", tenant="acme", text="@how long?"),
        ask(text="@how many?"), {"gold": {"subject": "number"}}, event("put", "none", tenant="acme", text="@how many?"),
        ask(text="@what length?"), {"gold": {"subject": "length"}},
    ]  # fmt: skip
    history, hit = last(*rows, event("hit", "none", tenant="acme", text="@what length?"))
    assert hit.write is not None
    assert (hit.write.op, history.lawful(hit)) == (0, True)


def test_the_tenant_part_may_differ_where_the_service_mistook_who_asked() -> None:
    history, hit = last(ask("birch"), event("put", "A", tenant="acme"), ask("birch"), event("hit", "A", tenant="cedar"))
    assert hit.own
    assert history.lawful(hit) is True
    history, hit = last(ask("birch"), event("put", "A", tenant="birch"), ask("acme"), event("hit", "A", tenant="acme"))
    assert history.lawful(hit) is False


def put_vector(doc: str, vector: str, tenant: str = "acme") -> dict[str, Any]:
    return event("put", vector, layer="index", doc=doc, tenant=tenant, version="1")


def search(vector: str, tenant: str = "acme") -> dict[str, Any]:
    found = event("search", layer="index", tenant=tenant, vector=vector)
    found["event"]["data"] = {"ranking": [["d1", 0.9]]}
    return found


def test_a_search_strays_over_vectors_of_another_encoder_even_when_they_are_not_returned() -> None:
    rows = [put_vector("d1", "vector:new:1"), put_vector("d2", "vector:old:2"), put_vector("d3", "vector:old:3")]
    start = [{"op": {"do": "load"}}, *rows, ask(), {"gold": {"relevant": {"d3": 1}}}]
    strays = History(evidence([*start, search("vector:new:q")])).searches[0].strays
    assert [stray.key["doc"] for stray in strays] == ["d3"]  # the one that should have been found tells it best
    assert History(evidence([*start, search("vector:unknown:")])).searches[0].strays == ()


def test_only_vectors_that_the_search_went_over_are_strays() -> None:
    rows = [put_vector("d1", "vector:new:1"), put_vector("b", "vector:old:2", tenant="birch")]
    start = [{"op": {"do": "load"}}, *rows, ask()]
    assert History(evidence([*start, search("vector:new:q")])).searches[0].strays == ()
    assert len(History(evidence([*start, search("vector:new:q", tenant="")])).searches[0].strays) == 1
    gone = [event("delete", layer="index", doc="b"), put_vector("b", "vector:new:2", tenant="birch")]
    assert History(evidence([*start, *gone, search("vector:new:q", tenant="")])).searches[0].strays == ()


@pytest.mark.parametrize("between", [event("put", "B", t="1"), event("delete", t="1")])
def test_a_value_that_was_replaced_or_deleted_is_not_lawful(between: dict[str, Any]) -> None:
    history, hit = last(ask(), event("put", "A", t="1"), between, ask(), event("hit", "A", t="1"))
    assert (hit.own, hit.live, hit.differs) == (False, False, ())
    assert history.lawful(hit) is False


def upgraded(layer: str, *between: dict[str, Any]) -> bool | None:
    """Whether a value may be served after a deployment under a key that does not name the encoder."""
    rows = [ask(), event("put", "A", layer, t="1"), {"op": {"do": "upgrade", "id": "minilm"}}, *between, ask()]
    history, hit = last(*rows, event("hit", "A", layer, t="1"))
    return history.lawful(hit)


@pytest.mark.parametrize(("layer", "holds"), [("answer", False), ("retrieval", False), ("text", True)])
def test_what_another_encoder_has_found_is_another_value(layer: str, holds: bool) -> None:
    assert upgraded(layer) is holds
    assert upgraded(layer, ask(), event("put", "A", layer, t="1")) is True


def test_a_delete_takes_away_what_was_put_before_a_deployment() -> None:
    rows = [ask(), event("put", "A", t="1"), {"op": {"do": "upgrade", "id": "minilm"}}, event("delete", t="1"), ask()]
    _, hit = last(*rows, event("hit", "A", t="1"))
    assert (hit.own, hit.live, hit.differs) == (False, False, ("model",))


def test_a_ranking_does_not_depend_on_the_prompt() -> None:
    for layer, holds in (("answer", False), ("retrieval", True)):
        rows = [ask(), event("put", "A", layer, t="1"), ask(prompt="brief"), event("hit", "A", layer, t="1")]
        history, hit = last(*rows)
        assert history.lawful(hit) is holds


def test_a_key_that_names_prompt_and_encoder_is_taken_at_its_word() -> None:
    """The same encoder deployed again is no other one, and a stack that knows no prompts has one for all."""
    own = {"t": "1", "model": "f1", "prompt": "p"}
    rows = [ask(), event("put", "A", **own), {"op": {"do": "upgrade", "id": "minilm"}}, ask(prompt="brief")]
    history, hit = last(*rows, event("hit", "A", **own))
    assert hit.own and history.lawful(hit) is True


def test_what_an_event_put_is_there_for_whoever_asks() -> None:
    rows = [ask(prompt="brief"), event("put", "A", t="1", prompt="p"), {"op": {"do": "upsert", "id": "d"}}]
    history, hit = last(
        *rows, event("put", "B", t="1", prompt="p"), ask(prompt="brief"), event("hit", "B", t="1", prompt="p")
    )
    assert hit.own and history.lawful(hit) is True


def test_layers_are_apart() -> None:
    _, hit = last(ask(), event("put", "A", t="1"), ask(), event("hit", "A", layer="retrieval", t="1"))
    assert hit.write is None


def test_a_miss_and_an_eviction_are_always_lawful() -> None:
    history, _ = last(ask(), event("put", "A", t="1"), event("evict", t="1"), event("miss", t="1"))
    assert [x.hit for x in history.lookups] == [False]


def test_a_value_of_an_older_epoch_needs_a_known_origin() -> None:
    rows = [{"op": {"do": "load"}}, event("put", "A", epoch="1"), ask(), event("hit", "A", epoch="2")]
    history, hit = last(*rows)
    assert history.lawful(hit) is None


def test_who_asked_counts_and_not_what_the_key_says() -> None:
    """A service that takes birch for acme puts birch's answer under acme's key: no cache of acme's may return it."""
    history, hit = last(ask("birch"), event("put", "A", tenant="acme"), ask("acme"), event("hit", "A", tenant="acme"))
    assert hit.write is not None
    assert (history.asker(hit.write), history.asker(hit.event)) == ("birch", "acme")
    assert (hit.own, hit.differs, history.lawful(hit)) == (False, (), False)


def test_a_text_that_two_asks_give_two_subjects_has_none() -> None:
    rows = [ask(), {"gold": {"subject": "a"}}, ask(text="@r"), {"gold": {"subject": "a"}}]
    history = History(evidence(rows))
    first, second = (op.text for op in history.ops.values())
    assert history.same_subject("acme", first, second) is True
    assert history.same_subject("birch", first, second) is None
    history = History(evidence([*rows, ask(), {"gold": {"subject": "b"}}]))
    assert history.same_subject("acme", first, second) is None


def test_the_names_of_vectors_are_read() -> None:
    assert (encoder_of("vector:abc:def"), embedded_text("vector:abc:def")) == ("abc", "def")
    assert (encoder_of("vector:unknown:"), embedded_text("vector:unknown:")) == ("", "")
    assert (encoder_of("0123"), embedded_text("0123")) == ("", "")
    assert differing(parts_of({"a": "1", "b": "2"}), parts_of({"b": "3", "c": "1"})) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("arm", "goes_over_it"),
    [
        ("faulty", True),
        ("faulty-without:text", True),
        ("faulty-without:index", False),
        ("faulty-without:answer+index", False),
    ],
)
def test_searches_of_an_arm_without_the_index_do_not_go_over_it(arm: str, goes_over_it: bool) -> None:
    assert History(evidence([ask()], arm)).searches_index is goes_over_it
