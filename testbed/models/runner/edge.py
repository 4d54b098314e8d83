"""What stands before the routes: who may speak to the server, and how much it reads of a request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def error_body(message: str, kind: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    """The protocol's error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


class Edge:
    """ASGI middleware: refuses foreign Host names, bodies that are too large, and bodies that never end.

    ``count(route, status)`` is called once per answer. ``hosts`` None allows any name (a container network); a server
    on the loopback address answers to loopback names only, so that a web page cannot reach it by a name of its own
    that resolves to 127.0.0.1.
    """

    def __init__(
        self,
        app: App,
        *,
        max_body_bytes: int,
        body_timeout_s: float,
        hosts: frozenset[str] | None,
        count: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._count = count
        self._max = max_body_bytes
        self._timeout_s = body_timeout_s
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._answer(scope, receive, self._counted(scope, send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {k.lower(): v for k, v in scope["headers"]}
        if self._hosts is not None and _host_name(headers.get(b"host", b"")) not in self._hosts:
            await _refuse(send, 403, "this server answers to loopback names only", "forbidden_host")
            return
        try:
            body = await asyncio.wait_for(self._body(receive, headers), self._timeout_s)
        except TimeoutError:
            await _refuse(send, 408, f"the body did not arrive within {self._timeout_s:g} s", "request_timeout")
            return
        if body is None:
            await _refuse(send, 413, f"the body is larger than {self._max} bytes", "request_too_large")
            return
        await self._app(scope, _replay(body, receive), send)

    def _counted(self, scope: Scope, send: Send) -> Send:
        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                # unknown paths share one label: a client must not be able to grow the metrics
                self._count(getattr(scope.get("route"), "path", "other"), message["status"])
            await send(message)

        return counted

    async def _body(self, receive: Receive, headers: dict[bytes, bytes]) -> bytes | None:
        """The whole body; None when it is, or says it is, larger than allowed."""
        said = headers.get(b"content-length", b"")
        if said.isdigit() and int(said) > self._max:
            return None
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max:
                return None
            if not message.get("more_body"):
                return b"".join(parts)


def _host_name(header: bytes) -> str:
    text = header.decode("latin-1").lower()
    return text[: text.find("]") + 1] if text.startswith("[") else text.split(":")[0]


def _replay(body: bytes, receive: Receive) -> Receive:
    """First the body in one piece, then whatever the connection says next (a disconnect)."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


async def _refuse(send: Send, status: int, message: str, code: str) -> None:
    body = json.dumps(error_body(message, "invalid_request_error", code)).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    # what is left of the body is not read: the connection cannot be used again
    await send({"type": "http.response.start", "status": status, "headers": [*head, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})
