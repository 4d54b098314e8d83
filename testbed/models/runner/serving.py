"""A server as an object: a socket, an engine, and a clean end."""

from __future__ import annotations

import asyncio
import socket
import threading

import uvicorn

from testbed.core.errors import HarnessError, InvalidInput, Unavailable
from testbed.models.runner import server
from testbed.models.runner.engine import Engine

GRACE_S = 5


def listen(host: str, port: int) -> socket.socket:
    """A bound, listening socket; ``port`` 0 takes a free one."""
    if not 0 <= port < 65536:
        raise InvalidInput(f"port={port} must be 0 to 65535")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=256)
    except OSError as e:
        raise HarnessError(f"cannot listen on host={host} port={port}: {e.strerror or e}") from e


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class Running:
    """Serves until ``stop`` or, when run on the main thread, until SIGTERM or SIGINT.

    Stopping ends the model's work first (open answers are told so), then the connections, then the engine's thread.
    """

    def __init__(self, engine: Engine, listener: socket.socket | None = None, *, max_connections: int = 256) -> None:
        self._listener = listener or listen("127.0.0.1", 0)
        self._engine = engine
        self._up = threading.Event()
        self._down = threading.Event()
        host, port = self._listener.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        config = uvicorn.Config(
            server.app(engine, loopback_only=is_loopback(host)),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
            limit_concurrency=max_connections,
            ws="none",
        )
        self._server = _Server(config, self)

    def run(self) -> None:
        """Block until the end."""
        try:
            self._server.run(sockets=[self._listener])
        finally:
            self._engine.stop()
            self._listener.close()
            self._down.set()

    def wait_until_up(self, timeout_s: float) -> str:
        """The base URL, as soon as the server answers; Unavailable when it does not in time."""
        if not self._up.wait(timeout_s):
            raise Unavailable(f"the model runner at {self.url} did not start within {timeout_s:g} s")
        return self.url

    def stop(self, timeout_s: float = 15.0) -> None:
        self._server.should_exit = True
        self._down.wait(timeout_s)

    def came_up(self) -> None:
        self._up.set()

    async def stop_model(self) -> None:
        await asyncio.to_thread(self._engine.stop)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, running: Running) -> None:
        super().__init__(config)
        self._running = running

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._running.came_up()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._running.stop_model()
        await super().shutdown(sockets)
