from __future__ import annotations

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from testbed.diagnose.imported import Corpus, Imported, Request, judge, read_requests
from testbed.record.spans import Span, read

SERVICE = Path(__file__).resolve().parents[2] / "fixtures" / "spans" / "service.jsonl"
ANSWER = "The request timeout of the gateway is 30 seconds."
QUESTION = "How long may a request take?"


def request(n: int, tenant: str = "acme", answer: str = ANSWER, **changed: object) -> Request:
    made = Request("f:1", f"t{n}", n, tenant, QUESTION, answer, (), {}, frozenset({"CHAIN"}), ())
    return replace(made, **changed)  # type: ignore[arg-type]


def read_from(n: int, text: str = "thirty", **changed: object) -> Request:
    return request(n, ranking=("d",), contents={"d": text}, kinds=frozenset({"CHAIN", "RETRIEVER"}), **changed)


def kinds(*requests: Request) -> list[str]:
    return [s.kind for s in judge(requests, 0).suspicions]


@pytest.fixture(scope="module")
def service() -> Imported:
    spans = read(SERVICE)
    return judge(read_requests(spans), len(spans))


def test_a_real_service_that_leaks_and_keeps_old_answers_is_seen_through(service: Imported) -> None:
    """See build.py beside the file: of seven requests three came from the cache, one wrongly, one late."""
    assert (service.requests, service.tenants) == (7, 2)
    assert service.hits == {"chain": (3, 7)}
    assert (service.without_model, service.without_retrieval) == (3, 3)
    assert [s.kind for s in service.suspicions] == ["shared", "old"]
    assert "birch" in service.suspicions[0].story and "acme-timeout" in service.suspicions[1].story


def test_with_the_corpus_ranking_and_staleness_are_scored() -> None:
    requests = read_requests(read(SERVICE))
    texts = {
        "acme-timeout": "The request timeout of the payment gateway at Acme is 10 seconds.",
        "acme-owner": "The payment gateway at Acme is owned by the checkout team.",
    }
    found = judge(requests, 0, Corpus(texts, {"who owns the payment gateway?": {"acme-owner": 1}}))
    assert found.ranked == 1 and found.mrr == 1.0
    assert (found.stale, found.compared) == (2, 6)  # both early asks of Acme were shown "30 seconds"
    assert found.unknown == 2  # Birch's pages, of the one ask that was not served from the cache
    assert isnan(judge(requests, 0).mrr)


def test_an_answer_that_another_tenant_got_is_suspicious_only_without_a_retrieval_of_ones_own() -> None:
    assert kinds(read_from(1), request(2, "birch")) == ["shared"]
    assert kinds(read_from(1), read_from(2, tenant="birch")) == []
    assert kinds(read_from(1), request(2)) == []  # the same tenant: what a cache is for
    assert kinds(read_from(1, answer="Yes."), request(2, "birch", "Yes.")) == []


def test_an_answer_is_old_once_its_document_was_seen_with_another_text() -> None:
    other = read_from(2, "ten", question="And now?", answer="Ten seconds, as of this week.")
    assert kinds(read_from(1), other, request(3)) == ["old"]
    assert kinds(read_from(1), request(2), replace(other, trace="t3", start_ns=3)) == []
    assert kinds(read_from(1), other, read_from(3, "ten")) == []


def test_several_answers_to_one_question_are_suspicious_while_nothing_changed() -> None:
    assert kinds(read_from(1), read_from(2, answer="Nobody knows how long it may be.")) == ["unsure"]
    assert kinds(read_from(1), read_from(2, "ten", answer="The request timeout of the gateway is 10 s.")) == []
    assert kinds(read_from(1), read_from(2, tenant="birch", answer="Nobody knows how long it is.")) == []


def test_absence_tells_nothing_where_no_request_has_such_a_span() -> None:
    found = judge([request(1), request(2)], 2)
    assert (found.without_model, found.without_retrieval, found.hits) == (None, None, {})


@pytest.mark.parametrize(
    ("attributes", "asked", "tenant"),
    [
        ({"user.id": "u", "session.id": "s"}, "", "u"),
        ({"metadata": '{"tenant": "acme"}', "user.id": "u"}, "", "acme"),
        ({"metadata": "not json", "session.id": "s"}, "", "s"),
        ({"org": "o", "user.id": "u"}, "org", "o"),
        ({}, "", ""),
    ],
)
def test_who_asks_is_the_first_attribute_that_tells(attributes: dict[str, str], asked: str, tenant: str) -> None:
    span = Span("f:1", "t", "s", "", "query", 1, {"input.value": '{"query_str": "why?"}', **attributes})
    (found,) = read_requests([span], asked)
    assert (found.tenant, found.question) == (tenant, "why?")


def test_a_document_that_was_only_indexed_is_no_request() -> None:
    assert (
        read_requests(
            [Span("f:1", "t", "s", "", "embed", 1, {"openinference.span.kind": "EMBEDDING", "input.value": "x"})]
        )
        == []
    )
