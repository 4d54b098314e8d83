from __future__ import annotations

import base64
import concurrent.futures
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from testbed.core.errors import InvalidInput, Unavailable
from testbed.models.llm import LlmClient
from testbed.models.runner import weights
from testbed.models.runner.adapters import Adapter, LowRank
from testbed.models.runner.engine import Engine
from testbed.models.runner.policy import Policy
from testbed.models.runner.prefix import PrefixCache

pytestmark = pytest.mark.models
ROOT = Path(__file__).resolve().parents[3]
Serve = Callable[..., str]


def post(url: str, path: str, body: Any, **kwargs: Any) -> httpx.Response:
    return httpx.post(url + path, json=body, timeout=60, trust_env=False, **kwargs)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_the_same_greedy_request_gives_the_same_text_whatever_came_between(serve: Serve) -> None:
    url = serve()
    ask = {"model": "tiny", "prompt": "the refund window is", "max_tokens": 12}
    first = post(url, "/v1/completions", ask).json()
    post(url, "/v1/completions", {**ask, "prompt": "something else entirely"})
    again = post(url, "/v1/completions", ask).json()
    assert first["choices"] == again["choices"]
    assert first["choices"][0]["finish_reason"] == "length"
    assert first["usage"]["completion_tokens"] == 12
    assert first["usage"]["prompt_tokens"] == len("the refund window is") + 1


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
def test_the_streamed_pieces_join_to_the_whole_answer(serve: Serve, route: str) -> None:
    url = serve()
    ask: dict[str, Any] = {"model": "tiny", "max_tokens": 16}
    ask |= {"messages": [{"role": "user", "content": "hi"}]} if "chat" in route else {"prompt": "hi"}
    whole = post(url, route, ask).json()["choices"][0]
    streamed = events(post(url, route, {**ask, "stream": True, "stream_options": {"include_usage": True}}))
    *pieces, usage = streamed
    if "chat" in route:
        assert pieces[0]["choices"][0]["delta"]["role"] == "assistant"
        joined = "".join(p["choices"][0]["delta"]["content"] for p in pieces)
        assert joined.strip() == whole["message"]["content"]
    else:
        assert "".join(p["choices"][0]["text"] for p in pieces) == whole["text"]
    assert [p["choices"][0]["finish_reason"] for p in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 16


def test_a_list_of_prompts_gives_the_choice_that_each_gives_alone(serve: Serve) -> None:
    url = serve()
    prompts = ["alpha", "a much longer prompt than the first", "gamma"]
    together = post(url, "/v1/completions", {"model": "tiny", "prompt": prompts, "max_tokens": 6}).json()["choices"]
    alone = [
        post(url, "/v1/completions", {"model": "tiny", "prompt": p, "max_tokens": 6}).json()["choices"][0]["text"]
        for p in prompts
    ]
    assert [c["text"] for c in together] == alone
    assert len(set(alone)) == 3


def test_token_ids_are_accepted_as_a_prompt(serve: Serve) -> None:
    url = serve()
    text = post(url, "/v1/completions", {"model": "tiny", "prompt": "abc", "max_tokens": 5}).json()
    ids = post(url, "/v1/completions", {"model": "tiny", "prompt": [256, 97, 98, 99], "max_tokens": 5}).json()
    assert text["choices"] == ids["choices"]


def test_embeddings_are_unit_vectors_and_base64_holds_the_same_floats(serve: Serve) -> None:
    url = serve()
    plain = post(url, "/v1/embeddings", {"model": "tiny", "input": ["one", "two"]}).json()["data"]
    coded = post(url, "/v1/embeddings", {"model": "tiny", "input": ["one", "two"], "encoding_format": "base64"}).json()
    for row, other in zip(plain, coded["data"], strict=True):
        raw = base64.b64decode(other["embedding"])
        floats = struct.unpack(f"<{len(raw) // 4}f", raw)
        assert list(floats) == pytest.approx(row["embedding"], abs=1e-7)
        assert sum(x * x for x in floats) == pytest.approx(1.0, abs=1e-5)
    assert plain[0]["embedding"] != plain[1]["embedding"]


REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("unknown model", "/v1/completions", {"model": "gpt-9", "prompt": "x"}, 404, "gpt-9"),
    ("misspelt field", "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokenz": 1}, 400, "max_tokenz"),
    ("no prompt", "/v1/completions", {"model": "tiny"}, 400, "prompt"),
    ("empty list", "/v1/completions", {"model": "tiny", "prompt": []}, 400, "prompt"),
    ("too many choices", "/v1/completions", {"model": "tiny", "prompt": "x", "n": 2}, 400, "n"),
    ("zero tokens", "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
    ("number as text", "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": "5"}, 400, "max_tokens"),
    ("hot", "/v1/completions", {"model": "tiny", "prompt": "x", "temperature": 3}, 400, "temperature"),
    ("id out of range", "/v1/completions", {"model": "tiny", "prompt": [1, 999999]}, 400, "token ids"),
    ("too long", "/v1/completions", {"model": "tiny", "prompt": "x" * 9000}, 400, "9001 prompt tokens"),
    ("role", "/v1/chat/completions", {"model": "tiny", "messages": [{"role": "r", "content": "x"}]}, 400, "role"),
    ("tools", "/v1/chat/completions", {"model": "tiny", "messages": [], "tools": [{}]}, 400, ""),
    ("empty input", "/v1/embeddings", {"model": "tiny", "input": ""}, 400, "empty"),
    ("not an object", "/v1/completions", ["x"], 400, ""),
]


def test_every_bad_request_is_refused_with_the_protocols_error_object(serve: Serve) -> None:
    url = serve()
    for name, path, body, status, words in REFUSED:
        response = post(url, path, body)
        assert response.status_code == status, (name, response.text)
        error = response.json()["error"]
        assert words in error["message"] and error["type"] == "invalid_request_error", (name, error)
    assert post(url, "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"model": "tiny", "prompt": "\\ud800"}'])
def test_a_body_that_is_no_json_text_is_a_400(serve: Serve, raw: bytes) -> None:
    response = httpx.post(
        serve() + "/v1/completions", content=raw, headers={"content-type": "application/json"}, trust_env=False
    )
    assert response.status_code == 400, response.text
    assert "error" in response.json()


def test_a_body_over_the_limit_is_refused_unread_declared_or_not(serve: Serve) -> None:
    url = serve()
    big = {"model": "tiny", "prompt": "x" * (5 * 1024 * 1024)}
    assert post(url, "/v1/completions", big).status_code == 413
    raw = json.dumps(big).encode()
    chunks = (raw[i : i + 65536] for i in range(0, len(raw), 65536))
    try:
        undeclared = httpx.post(url + "/v1/completions", content=chunks, timeout=30, trust_env=False).status_code
    except httpx.WriteError:  # the server closed while we were still sending, as it may
        undeclared = 413
    assert undeclared == 413


def test_a_foreign_host_name_is_refused_on_loopback(serve: Serve) -> None:
    url = serve()
    body = {"model": "tiny", "prompt": "x"}
    assert post(url, "/v1/completions", body, headers={"host": "evil.example"}).status_code == 403
    assert httpx.get(url + "/healthz", headers={"host": "localhost:1"}, trust_env=False).status_code == 200


def test_unknown_paths_share_one_label_of_the_metrics(serve: Serve) -> None:
    url = serve()
    for i in range(20):
        httpx.get(f"{url}/nothing/{i}", trust_env=False)
    post(url, "/v1/completions", {"model": "tiny", "prompt": "x", "max_tokens": 3})
    text = httpx.get(url + "/metrics", trust_env=False).text
    assert 'testbed_runner_requests_total{code="404",route="other"} 20' in text
    assert "testbed_runner_completion_tokens_total 3\n" in text
    assert 'testbed_runner_first_token_seconds_bucket{le="+Inf"} 1' in text


def test_fifty_clients_at_once_get_each_the_answer_to_their_own_canary(serve: Serve) -> None:
    url = serve(max_queue=64)
    prompts = [f"canary {i:02d} of this client only" for i in range(50)]

    def ask(prompt: str) -> str:
        with LlmClient(url + "/v1", "tiny") as client:
            return client.complete(prompt, max_tokens=16).text

    expected = [ask(p) for p in prompts]
    assert len(set(expected)) == 50
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        assert list(pool.map(ask, prompts)) == expected


def test_a_full_queue_refuses_at_once_and_serves_again_later(serve: Serve) -> None:
    url = serve(max_queue=1)
    slow = {"model": "tiny", "prompt": "x", "max_tokens": 400}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(url, "/v1/completions", slow), range(8)))
    codes = [a.status_code for a in answers]
    assert set(codes) == {200, 429}
    refused = next(a for a in answers if a.status_code == 429)
    assert refused.json()["error"]["code"] == "queue_full" and refused.headers["retry-after"] == "1"
    assert post(url, "/v1/completions", {**slow, "max_tokens": 1}).status_code == 200


def test_a_client_that_goes_away_does_not_hold_the_model(serve: Serve) -> None:
    url = serve()
    with httpx.Client(trust_env=False, timeout=30) as client:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 4000, "stream": True}
        with client.stream("POST", url + "/v1/completions", json=body) as response:
            next(response.iter_lines())
    # the next answer would wait for 4,000 tokens if the first one were still being generated
    reply = httpx.post(
        url + "/v1/completions", json={"model": "tiny", "prompt": "y", "max_tokens": 1}, timeout=10, trust_env=False
    )
    assert reply.status_code == 200


def test_stopping_ends_open_answers_with_an_error_and_frees_the_port(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "testbed.models.runner", "--model", "tiny", "--port", "0", "--threads", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.split()[2]
        seen: list[str] = []

        def read() -> None:
            body = {"model": "tiny", "prompt": "x", "max_tokens": 4000, "stream": True}
            with httpx.stream("POST", url + "/v1/completions", json=body, timeout=60, trust_env=False) as response:
                for data in response.iter_lines():
                    seen.append(data)
                    started.set()

        started = threading.Event()
        reader = threading.Thread(target=read)
        reader.start()
        assert started.wait(60)
        process.send_signal(signal.SIGTERM)
        reader.join(20)
        assert process.wait(20) == 0
        assert "the server is stopping" in "".join(seen)
        with socket.socket() as again:
            host, port = url.removeprefix("http://").split(":")
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind((host, int(port)))
    finally:
        process.kill()
        process.communicate()


def test_a_taken_port_an_unknown_model_and_a_bad_setting_are_one_line_with_their_exit_status() -> None:
    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        return subprocess.run(
            [sys.executable, "-m", "testbed.models.runner", *argv], cwd=ROOT, env=env, capture_output=True, text=True
        )

    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = run("--model", "tiny", "--port", str(taken.getsockname()[1]))
    assert (result.returncode, result.stderr.count("\n")) == (3, 1)
    assert "cannot listen" in result.stderr
    result = run("--model", "no/such-model", "--port", "0")
    assert result.returncode == 3 and "could not be loaded" in result.stderr and "Traceback" not in result.stderr
    result = run("--model", "tiny", "--port", "0", "--kv-decode-recall", "often")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--kv-decode-recall='often' must be a whole number" in result.stderr


def test_a_prefix_is_reused_within_a_tenant_only_and_says_the_same(serve: Serve) -> None:
    url = serve(prefix_cache=PrefixCache(2**24, block=16))
    ask = {"model": "tiny", "prompt": "a long beginning that two requests share, and more", "max_tokens": 8}

    def answer(salt: str) -> tuple[str, int]:
        reply = post(url, "/v1/completions", {**ask, "cache_salt": salt}).json()
        return reply["choices"][0]["text"], reply["usage"]["prompt_tokens_details"]["cached_tokens"]

    first, again, other = answer("a"), answer("a"), answer("b")
    assert [n for _, n in (first, again, other)] == [0, 48, 0]
    assert first[0] == again[0] == other[0]
    text = httpx.get(url + "/metrics", trust_env=False).text
    assert 'testbed_runner_prefix_cache_requests_total{result="hit"} 1' in text
    assert "testbed_runner_prefix_cached_tokens_total 48" in text


def test_an_adapter_is_served_under_its_own_name(serve: Serve, tiny: weights.Loaded) -> None:
    engine = Engine(tiny)
    low = LowRank(torch.ones(2, 64), torch.ones(32, 2) * 0.3, 1.0)
    engine.add_adapter(Adapter.of("polite", {"model.layers.0.self_attn.v_proj": low}))
    with pytest.raises(InvalidInput, match="name of the model"):
        engine.add_adapter(Adapter.of("tiny", {}))
    url = serve(engine)
    names = [m["id"] for m in httpx.get(url + "/v1/models", trust_env=False).json()["data"]]
    assert names == ["tiny", "polite"]
    texts = [
        post(url, "/v1/completions", {"model": name, "prompt": "hello", "max_tokens": 8}).json()["choices"][0]["text"]
        for name in ("tiny", "polite", "tiny")
    ]
    assert texts[0] == texts[2] != texts[1]


def test_a_sparse_cache_answers_like_the_full_one_while_nothing_is_old_and_reports_what_it_holds(serve: Serve) -> None:
    policy = Policy(window=64, block=16, sink=16, max_blocks=2)
    full, sparse = serve(), serve(Engine(weights.load("tiny"), strategy="sliding_sparse", policy=policy))
    short = {"model": "tiny", "prompt": "short", "max_tokens": 16}
    assert (
        post(full, "/v1/completions", short).json()["choices"]
        == post(sparse, "/v1/completions", short).json()["choices"]
    )
    long = {"model": "tiny", "prompt": "x y z " * 200, "max_tokens": 4}
    one, two = (post(sparse, "/v1/completions", long).json()["choices"] for _ in range(2))
    assert one == two
    lines = dict(
        line.split() for line in httpx.get(sparse + "/metrics", trust_env=False).text.splitlines() if "kv_" in line[:18]
    )
    assert float(lines["testbed_runner_kv_keep_ratio"]) < 0.2
    assert len(post(sparse, "/v1/embeddings", {"model": "tiny", "input": "x"}).json()["data"][0]["embedding"]) == 64


def test_the_client_sorts_refusal_from_absence(serve: Serve) -> None:
    url = serve()
    with LlmClient(url + "/v1", "tiny") as client:
        assert client.models() == ["tiny"]
        assert client.chat([("user", "hello")], max_tokens=3).n_completion == 3
        assert len(client.embed(["a", "b"])) == 2
    with LlmClient(url + "/v1", "other") as client, pytest.raises(InvalidInput, match="not served"):
        client.complete("x")
    with LlmClient("http://127.0.0.1:9/v1", "tiny", timeout_s=2) as client, pytest.raises(Unavailable):
        client.complete("x")


def test_the_public_openai_client_makes_its_basic_calls(serve: Serve) -> None:
    openai = pytest.importorskip("openai", reason="needs the public openai client")
    url = serve()
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    assert [m.id for m in client.models.list()] == ["tiny"]
    done = client.completions.create(model="tiny", prompt="hello", max_tokens=4)
    assert done.usage.completion_tokens == 4
    messages = [{"role": "user", "content": "hello"}]
    chat = client.chat.completions.create(model="tiny", messages=messages, max_tokens=4)
    assert chat.choices[0].message.role == "assistant"
    pieces = client.chat.completions.create(model="tiny", messages=messages, max_tokens=4, stream=True)
    text = "".join(p.choices[0].delta.content or "" for p in pieces)
    assert text.strip() == chat.choices[0].message.content
    assert len(client.embeddings.create(model="tiny", input="hello").data[0].embedding) == 64
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="nope", prompt="x")
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tiny", prompt="x" * 9000)
