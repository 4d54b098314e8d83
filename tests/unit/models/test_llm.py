from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from testbed.core.errors import BrokenContract, InvalidInput, Unavailable
from testbed.core.ports import Passage
from testbed.models.llm import LlmClient, LlmReader

Handler = Callable[[httpx.Request], httpx.Response]


def client(handler: Handler, **kwargs: str) -> LlmClient:
    return LlmClient("http://here/v1/", "m", transport=httpx.MockTransport(handler), **kwargs)


def saying(text: str, seen: list[dict[str, object]]) -> Handler:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        choice = {"text": text, "message": {"content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
        return httpx.Response(200, json={"choices": [choice], "usage": usage})

    return answer


def test_a_request_is_greedy_and_carries_its_salt_only_when_there_is_one() -> None:
    seen: list[dict[str, object]] = []
    done = client(saying("yes", seen), salt="tenant-a").complete("p", max_tokens=5, stop=["\n"])
    assert done == ("yes", "stop", 3, 2, 1)
    assert seen == [
        {"model": "m", "cache_salt": "tenant-a", "prompt": "p", "max_tokens": 5, "temperature": 0.0, "seed": 0,
         "stop": ["\n"]}
    ]  # fmt: skip
    client(saying("yes", seen)).chat([("user", "p")])
    assert "cache_salt" not in seen[1] and "stop" not in seen[1]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (429, {"error": {"message": "queue"}}, Unavailable),
        (503, {"error": {"message": "stopping"}}, Unavailable),
        (404, {"error": {"message": "no such model"}}, InvalidInput),
        (400, "plain", InvalidInput),
        (200, {"choices": []}, BrokenContract),
        (200, ["no object"], BrokenContract),
    ],
)
def test_answers_that_are_no_completion_are_told_apart(status: int, body: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        client(lambda _: httpx.Response(status, json=body)).complete("x")


def test_vectors_come_back_in_the_order_asked_and_a_missing_one_is_an_error() -> None:
    rows = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    there = client(lambda _: httpx.Response(200, json={"data": rows}))
    assert there.embed(["a", "b"]) == [[1.0], [2.0]]
    with pytest.raises(BrokenContract, match="2 vectors for 3"):
        there.embed(["a", "b", "c"])


def test_the_reader_shows_passages_and_what_they_refer_to_and_names_them_as_sources() -> None:
    seen: list[dict[str, object]] = []
    reader = LlmReader(client(saying(" 30 days ", seen)), name="m")
    passages = [Passage("a", 2, "The window is\n30.", ("rule",))]
    linked = {"rule": Passage("rule", 1, "Windows are in days."), "other": Passage("other", 1, "x")}
    answer = reader.read("How long?", passages, linked)
    assert seen[0]["prompt"] == "Context: The window is 30.\nWindows are in days.\nQuestion: How long?\nAnswer:"
    assert (answer.text, answer.ranking, answer.abstained) == ("30 days", ("a",), False)
    assert [(s.doc_id, s.version) for s in answer.sources] == [("a", 2), ("rule", 1)]


def test_the_reader_abstains_when_the_model_says_nothing_or_there_is_nothing_to_read() -> None:
    reader = LlmReader(client(saying("  ", [])), name="m")
    assert reader.read("q", [Passage("a", 1, "t")], {}).abstained
    assert reader.read("q", [], {}).abstained


@pytest.mark.parametrize(
    "address",
    [
        "",
        "http://[",
        "http://h:port/v1",
        "ftp://h/v1",
        "127.0.0.1:8000",
        "http://:secret@",
        "http://a..b/v1",
        "http://\u2603..com/v1",
        "http://h\n/v1",
        " http://h/v1",
    ],
)
def test_an_address_that_is_none_is_refused_without_showing_a_password(address: str) -> None:
    with pytest.raises(InvalidInput, match=r"expected http://host:port/v1") as caught:
        LlmClient(address, "m")
    assert "secret" not in str(caught.value)
