"""A client for any OpenAI-compatible endpoint: plain HTTP, no retries that would hide an error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import httpx

from testbed.core.errors import BrokenContract, InvalidInput, Unavailable
from testbed.core.ports import Passage
from testbed.core.types import Answer, Source
from testbed.models.reader import ABSTENTION


class Completion(NamedTuple):
    """What the model said. ``finish`` is ``stop`` or ``length``; ``n_cached`` prompt tokens were found in a cache."""

    text: str
    finish: str
    n_prompt: int
    n_completion: int
    n_cached: int = 0


class LlmClient:
    """Completions, chat and embeddings of one model at ``base_url`` (``http://127.0.0.1:8000/v1``).

    Greedy unless told otherwise. ``salt`` keeps this caller's prefix cache entries apart from others' (sent as
    ``cache_salt``, and only when set: not every server knows it). ``transport`` replaces the network in tests.

    An address that is none is InvalidInput. Every method raises Unavailable (nothing answers, or the server is busy or
    stopping), InvalidInput (the server refuses the request) or BrokenContract (it answered something else than the
    protocol says).
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "",
        salt: str = "",
        timeout_s: float = 120.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        _check_address(base_url)
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._url = base_url.rstrip("/")
        self._shown = re.sub(r"//[^/]*@", "//", self._url)  # without a password
        self._base = {"model": model, **({"cache_salt": salt} if salt else {})}
        # no proxy and no netrc from the environment: what is asked for is what is called
        self._http = httpx.Client(headers=headers, timeout=timeout_s, transport=transport, trust_env=False)

    def complete(self, prompt: str, *, max_tokens: int = 64, stop: Sequence[str] = (), seed: int = 0) -> Completion:
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0.0, "seed": seed}
        answer = self._post("/completions", {**body, **({"stop": list(stop)} if stop else {})})
        return _completion(answer, lambda choice: choice["text"])

    def chat(
        self, messages: Sequence[tuple[str, str]], *, max_tokens: int = 64, stop: Sequence[str] = (), seed: int = 0
    ) -> Completion:
        """``messages`` are (role, text) pairs, oldest first."""
        turns = [{"role": role, "content": text} for role, text in messages]
        body = {"messages": turns, "max_tokens": max_tokens, "temperature": 0.0, "seed": seed}
        answer = self._post("/chat/completions", {**body, **({"stop": list(stop)} if stop else {})})
        return _completion(answer, lambda choice: choice["message"]["content"] or "")

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in the order asked."""
        answer = self._post("/embeddings", {"input": list(texts), "encoding_format": "float"})
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = [[float(x) for x in row["embedding"]] for row in rows]
        except (KeyError, TypeError, ValueError) as e:
            raise BrokenContract(f"{self._shown}/embeddings answered without vectors: {e!r}") from e
        if len(vectors) != len(texts):
            raise BrokenContract(f"{self._shown}/embeddings gave {len(vectors)} vectors for {len(texts)} texts")
        return vectors

    def models(self) -> list[str]:
        """The names that the endpoint serves."""
        answer = self._read(self._send("GET", "/models"))
        return [str(row["id"]) for row in answer.get("data", [])]

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> LlmClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._read(self._send("POST", path, json={**self._base, **body}))

    def _send(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        try:
            return self._http.request(method, self._url + path, **kwargs)
        except httpx.TimeoutException as e:
            raise Unavailable(f"{self._shown} did not answer in time ({type(e).__name__})") from e
        except httpx.TransportError as e:
            raise Unavailable(f"{self._shown} is not reachable ({e}); is the model runner up?") from e

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if response.status_code in (408, 429) or response.status_code >= 500:
            raise Unavailable(f"{_shown(response)} answered {response.status_code}: {_reason(answer, response)}")
        if response.status_code >= 400:
            raise InvalidInput(
                f"{_shown(response)} refused the request ({response.status_code}): {_reason(answer, response)}"
            )
        if not isinstance(answer, dict):
            raise BrokenContract(f"{_shown(response)} answered no JSON object: {response.text[:80]!r}")
        return answer


def _shown(response: httpx.Response) -> str:
    return str(response.url.copy_with(username=None, password=None))


def _check_address(base_url: str) -> None:
    try:
        parts, host = urlsplit(base_url), httpx.URL(base_url).host
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and base_url == base_url.strip()
        host.encode("idna")  # as the connection will
        is_one = is_one and parts.port != 0
    except (ValueError, httpx.InvalidURL):  # a UnicodeError is a ValueError
        is_one = False
    if not is_one:  # not shown: it may hold a password
        raise InvalidInput("the endpoint's address is not a URL; expected http://host:port/v1 or https://host/v1")


class Completes(Protocol):
    """Continues a prompt: ``LlmClient`` over HTTP, or a model in this process."""

    def complete(self, prompt: str, *, max_tokens: int = 64, stop: Sequence[str] = (), seed: int = 0) -> Completion: ...


class LlmReader:
    """A reader that asks a model: the passages, those they refer to, the question; the first line of what it says.

    Greedy, so that one server gives one answer. Every passage is a source: what a model used it does not tell. When it
    says nothing, the reader abstains.
    """

    def __init__(self, client: Completes, *, name: str, max_tokens: int = 48) -> None:
        self.name = f"llm:{name}@1"
        self._client = client
        self._max_tokens = max_tokens

    def read(self, question: str, passages: Sequence[Passage], linked: Mapping[str, Passage]) -> Answer:
        ranking = tuple(p.doc_id for p in passages)
        shown = {p.doc_id: p for p in passages}
        for passage in passages:
            shown |= {ref: linked[ref] for ref in passage.refs if ref in linked and ref not in shown}
        if not shown:
            return Answer(ABSTENTION, ranking, abstained=True)
        said = self._client.complete(prompt(question, list(shown.values())), max_tokens=self._max_tokens, stop=["\n"])
        text = said.text.strip()
        if not text:
            return Answer(ABSTENTION, ranking, abstained=True)
        return Answer(text, ranking, tuple(Source(p.doc_id, p.version, p.text) for p in shown.values()))


def prompt(question: str, passages: Sequence[Passage]) -> str:
    """What a base model is shown: it goes on after ``Answer:`` with words of the context."""
    context = "\n".join(" ".join(p.text.split()) for p in passages)
    return f"Context: {context}\nQuestion: {' '.join(question.split())}\nAnswer:"


def _completion(answer: dict[str, Any], text_of: Any) -> Completion:
    try:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        counts = int(usage.get("prompt_tokens", 0)), int(usage.get("completion_tokens", 0)), int(cached)
        return Completion(str(text_of(choice)), str(choice["finish_reason"]), *counts)
    except (KeyError, IndexError, TypeError) as e:
        raise BrokenContract(f"the endpoint's answer lacks a choice: {e!r}") from e


def _reason(answer: Any, response: httpx.Response) -> str:
    error = answer.get("error") if isinstance(answer, dict) else None
    return str(error.get("message")) if isinstance(error, dict) else response.text[:200]
