"""The HTTP side: OpenAI-compatible routes over one engine.

Start it with ``python -m testbed.models.runner``; ``app`` builds the ASGI application for an engine that is running.
"""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from testbed.core import digest
from testbed.core.errors import HarnessError
from testbed.models.runner import wire
from testbed.models.runner.edge import LOOPBACK_NAMES, Edge, error_body
from testbed.models.runner.engine import Busy, Engine, Job, Result, Stopping
from testbed.models.runner.generate import Sampling
from testbed.models.runner.tokens import Message

MAX_BODY_BYTES = 4 * 1024 * 1024
BODY_TIMEOUT_S = 30.0


class Refused(Exception):
    """A request that is answered with an error object."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = error_body(message, "invalid_request_error" if status < 500 else "server_error", code, param)


class Call:
    """One request's jobs on the engine, and their results as they come."""

    def __init__(
        self, engine: Engine, prompts: Sequence[tuple[int, ...]], sampling: Sampling | None, salt: str, adapter: str
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._results: asyncio.Queue[tuple[int, Result | HarnessError]] = asyncio.Queue()
        self.jobs = [Job(p, sampling, self._sink(i), salt, adapter) for i, p in enumerate(prompts)]
        try:
            for job in self.jobs:
                engine.submit(job)
        except BaseException:
            self.cancel()
            raise

    def _sink(self, index: int) -> Any:
        def put(result: Result | HarnessError) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                self._loop.call_soon_threadsafe(self._results.put_nowait, (index, result))

        return put

    async def results(self) -> AsyncIterator[tuple[int, Result]]:
        """(choice, piece) until every choice has finished; raises what the engine raised."""
        open_choices = len(self.jobs)
        while open_choices:
            index, result = await self._results.get()
            if isinstance(result, HarnessError):
                self.cancel()
                raise result
            open_choices -= bool(result.finish)
            yield index, result

    def cancel(self) -> None:
        for job in self.jobs:
            job.cancelled.set()


def app(engine: Engine, *, loopback_only: bool = True) -> FastAPI:
    """The ASGI application. No interactive documentation pages: they would load scripts from elsewhere."""
    api = FastAPI(title="rag-testbed model runner", docs_url=None, redoc_url=None, openapi_url=None)
    api.add_middleware(
        Edge,
        max_body_bytes=MAX_BODY_BYTES,
        body_timeout_s=BODY_TIMEOUT_S,
        hosts=LOOPBACK_NAMES if loopback_only else None,
        count=lambda route, status: engine.metrics.add("requests_total", route=route, code=str(status)),
    )
    _add_errors(api)
    _add_state(api, engine)
    routes = _Routes(engine)

    @api.post("/v1/completions")
    async def completions(body: wire.CompletionRequest, request: Request) -> Response:
        return await routes.completions(body, request)

    @api.post("/v1/chat/completions")
    async def chat(body: wire.ChatRequest, request: Request) -> Response:
        return await routes.chat(body, request)

    @api.post("/v1/embeddings")
    async def embeddings(body: wire.EmbeddingRequest, request: Request) -> Response:
        return await routes.embeddings(body, request)

    return api


def _add_state(api: FastAPI, engine: Engine) -> None:
    @api.get("/healthz")
    async def healthz() -> dict[str, str]:
        return {"status": "ok", "model": engine.loaded.name, "fingerprint": engine.loaded.fingerprint}

    @api.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(engine.metrics.render(), media_type="text/plain; version=0.0.4")

    @api.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model_card(engine, name) for name in engine.names]}

    @api.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        if name not in engine.names:
            raise _unknown_model(name, engine)
        return _model_card(engine, name)


def _model_card(engine: Engine, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "rag-testbed",
        "max_model_len": engine.loaded.max_tokens,
        "fingerprint": engine.adapters[name].fingerprint if name in engine.adapters else engine.loaded.fingerprint,
    }


def _unknown_model(name: str, engine: Engine) -> Refused:
    text = f"the model {name!r} is not served here; served: {', '.join(engine.names)}"
    return Refused(404, text, code="model_not_found", param="model")


def _add_errors(api: FastAPI) -> None:
    def answer(status: int, body: dict[str, Any], **headers: str) -> JSONResponse:
        return JSONResponse(body, status_code=status, headers=headers)

    @api.exception_handler(Refused)
    async def refused(request: Request, e: Refused) -> JSONResponse:
        return answer(e.status, e.body)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, e: RequestValidationError) -> JSONResponse:
        first = e.errors()[0]
        where = ".".join(str(p) for p in first["loc"] if p != "body")
        text = f"{where}: {first['msg']}" if where else str(first["msg"])
        return answer(400, error_body(text, "invalid_request_error", "invalid_value", where or None))

    @api.exception_handler(HTTPException)
    async def http(request: Request, e: HTTPException) -> JSONResponse:
        return answer(e.status_code, error_body(str(e.detail), "invalid_request_error"))

    @api.exception_handler(Busy)
    async def busy(request: Request, e: Busy) -> JSONResponse:
        return answer(429, error_body(str(e), "server_error", "queue_full"), **{"Retry-After": "1"})

    @api.exception_handler(HarnessError)
    async def failed(request: Request, e: HarnessError) -> JSONResponse:
        status = 503 if isinstance(e, Stopping) else 500
        return answer(status, error_body(str(e), "server_error", "stopping" if status == 503 else None))

    @api.exception_handler(Exception)
    async def bug(request: Request, e: Exception) -> JSONResponse:  # logged with its traceback by the server
        return answer(500, error_body(f"internal error: {type(e).__name__}", "server_error"))


class _Routes:
    """Requests to jobs, results to answers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._count = 0

    async def completions(self, body: wire.CompletionRequest, request: Request) -> Response:
        prompts = self._prompts(wire.inputs(body.prompt), body.max_tokens, "prompt")
        sampling = _sampling(body, body.max_tokens, ())
        return await self._generate(body, request, prompts, sampling, _Completion(self._head("cmpl", body)))

    async def chat(self, body: wire.ChatRequest, request: Request) -> Response:
        self._check_model(body.model)
        turns = [Message("system" if m.role == "developer" else m.role, m.text()) for m in body.messages]
        ids, stops = self._engine.loaded.tokenizer.chat(turns)
        prompts = self._prompts([ids], body.limit(), "messages")
        sampling = _sampling(body, body.limit(), stops)
        return await self._generate(body, request, prompts, sampling, _Chat(self._head("chatcmpl", body)))

    async def embeddings(self, body: wire.EmbeddingRequest, request: Request) -> Response:
        self._check_model(body.model)
        prompts = self._prompts(wire.inputs(body.input), 0, "input")
        call = Call(self._engine, prompts, None, body.cache_salt, self._adapter(body.model))
        found = await _whole(call, request)
        data = [
            {"object": "embedding", "index": i, "embedding": _encoded(found[i][-1].vector, body.encoding_format)}
            for i in sorted(found)
        ]
        n = sum(r[-1].n_prompt for r in found.values())
        usage = {"prompt_tokens": n, "total_tokens": n}
        return JSONResponse({"object": "list", "data": data, "model": body.model, "usage": usage})

    async def _generate(
        self, body: Any, request: Request, prompts: list[tuple[int, ...]], sampling: Sampling, shape: _Completion
    ) -> Response:
        self._check_model(body.model)
        call = Call(self._engine, prompts, sampling, body.cache_salt, self._adapter(body.model))
        if body.stream:
            events = _events(call, shape, body.wants_usage())
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        return JSONResponse(shape.whole(await _whole(call, request)))

    def _head(self, prefix: str, body: Any) -> dict[str, Any]:
        """Ids count up: nothing here is random. ``created`` is 0, as an answer holds no wall clock."""
        self._count += 1
        mark = digest.of_text(self._engine.loaded.fingerprint)[:8]
        return {
            "id": f"{prefix}-{self._count:08d}",
            "created": 0,
            "model": body.model,
            "system_fingerprint": f"fp_{mark}",
        }

    def _check_model(self, name: str) -> None:
        if name not in self._engine.names:
            raise _unknown_model(name, self._engine)

    def _adapter(self, name: str) -> str:
        return "" if name == self._engine.loaded.name else name

    def _prompts(self, values: list[Any], max_new: int, param: str) -> list[tuple[int, ...]]:
        loaded = self._engine.loaded
        out = []
        for value in values:
            ids = tuple(loaded.tokenizer.encode(value) if isinstance(value, str) else value)
            vocabulary = loaded.model.get_input_embeddings().num_embeddings
            if not ids or max(ids) >= vocabulary:
                raise Refused(400, f"{param} must hold token ids below {vocabulary}", code="invalid_value", param=param)
            if len(ids) + max_new > loaded.max_tokens:
                text = (
                    f"{len(ids)} prompt tokens and {max_new} to generate are more than the model's context of "
                    f"{loaded.max_tokens} tokens"
                )
                raise Refused(400, text, code="context_length_exceeded", param=param)
            out.append(ids)
        return out


class _Completion:
    """The shape of /v1/completions answers."""

    whole_object = "text_completion"
    piece_object = "text_completion"

    def __init__(self, head: dict[str, Any]) -> None:
        self._head = head
        self._began: set[int] = set()

    def whole(self, found: dict[int, list[Result]]) -> dict[str, Any]:
        choices = [self.choice(i, "".join(r.text for r in found[i]), found[i][-1].finish) for i in sorted(found)]
        usage = _usage([r[-1] for r in found.values()])
        return {**self._head, "object": self.whole_object, "choices": choices, "usage": usage}

    def piece(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> dict[str, Any]:
        return {**self._head, "object": self.piece_object, "choices": choices, **({"usage": usage} if usage else {})}

    def choice(self, index: int, text: str, finish: str) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": None, "finish_reason": finish or None}

    def delta(self, index: int, text: str, finish: str) -> dict[str, Any]:
        return self.choice(index, text, finish)


class _Chat(_Completion):
    """The shape of /v1/chat/completions answers."""

    whole_object = "chat.completion"
    piece_object = "chat.completion.chunk"

    def choice(self, index: int, text: str, finish: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text.strip(), "refusal": None}
        return {"index": index, "message": message, "logprobs": None, "finish_reason": finish or None}

    def delta(self, index: int, text: str, finish: str) -> dict[str, Any]:
        delta: dict[str, Any] = {"content": text}
        if index not in self._began:
            self._began.add(index)
            delta = {"role": "assistant", "content": text.lstrip()}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish or None}


def _sampling(body: Any, max_tokens: int, stops: tuple[str, ...]) -> Sampling:
    return Sampling(max_tokens, body.temperature, body.top_p, body.seed, (*body.stops(), *stops))


async def _whole(call: Call, request: Request) -> dict[int, list[Result]]:
    """All pieces by choice; the jobs are dropped when the client goes away."""

    async def gather() -> dict[int, list[Result]]:
        found: dict[int, list[Result]] = {}
        async for index, result in call.results():
            found.setdefault(index, []).append(result)
        return found

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work, watch = asyncio.ensure_future(gather()), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Refused(499, "the client closed the connection")
        return work.result()
    finally:
        call.cancel()
        work.cancel()
        watch.cancel()


async def _events(call: Call, shape: _Completion, with_usage: bool) -> AsyncIterator[str]:
    """Server-sent events, one a piece, then ``[DONE]``. An error after the start is an event too."""
    last: dict[int, Result] = {}
    try:
        async for index, result in call.results():
            last[index] = result
            yield _event(shape.piece([shape.delta(index, result.text, result.finish)], None))
        if with_usage:
            yield _event(shape.piece([], _usage(list(last.values()))))
    except HarnessError as e:
        yield _event(error_body(str(e), "server_error"))
    finally:
        call.cancel()
    yield "data: [DONE]\n\n"


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def _usage(last: list[Result]) -> dict[str, Any]:
    n_prompt, n_new = sum(r.n_prompt for r in last), sum(r.n_completion for r in last)
    details = {"cached_tokens": sum(r.n_cached for r in last)}
    return {
        "prompt_tokens": n_prompt,
        "completion_tokens": n_new,
        "total_tokens": n_prompt + n_new,
        "prompt_tokens_details": details,
    }


def _encoded(vector: tuple[float, ...], form: str) -> list[float] | str:
    """As numbers, or as base64 of little-endian float32 (what the public clients ask for)."""
    return list(vector) if form == "float" else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
