"""A TCP proxy that misbehaves on request: slow, narrow, stalled, lossy, resetting, cut off.

No privileges and no kernel support needed, on any system. Inside a program::

    with Proxy("127.0.0.1:6379") as proxy:
        client = redis.Redis(port=proxy.port)
        with proxy.disturbed(Disturbance(refuse=True)):
            ...                                             # the client is cut off
        ...                                                 # and is not any more

and as a service: ``python -m testbed.faults.proxy --listen 0.0.0.0:6379 --to redis:6379 --admin 0.0.0.0:8474``, where
``GET /`` on the admin port shows the disturbance and ``POST /`` with JSON replaces it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import random
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.request import urlopen

from testbed.core import seeds
from testbed.core.errors import HarnessError, InvalidInput, Unavailable

_CHUNK = 65536
_TICK_S = 0.01
_START_S = 10.0


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What a proxy does to what passes through it.

    Parameters
    ----------
    delay_ms, jitter_ms : added to each chunk in each direction; the jitter is uniform in [0, jitter_ms)
    bytes_per_s : 0 is no limit
    stall : connections stay open, nothing passes
    refuse : new connections and those that are open are reset
    loss : share of chunks, in [0, 1], after which the connection is reset: TCP hides a lost packet, not a lost peer
    cut_after_bytes : a connection is reset after so many bytes of the answer; 0 is never
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_s: float = 0.0
    stall: bool = False
    refuse: bool = False
    loss: float = 0.0
    cut_after_bytes: int = 0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) != (field.type == "bool") or not isinstance(value, bool | int | float):
                raise InvalidInput(f"{field.name}={value!r} must be a {field.type} (disturbance of a proxy)")
            if value < 0:
                raise InvalidInput(f"{field.name}={value!r} must be >= 0 (disturbance of a proxy)")
        if self.loss > 1:
            raise InvalidInput(f"loss={self.loss!r} must be in [0, 1] (disturbance of a proxy)")

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Disturbance:
        """From JSON; a name that is not one of its fields is an error."""
        known = {f.name for f in dataclasses.fields(cls)}
        if not set(told) <= known:
            raise InvalidInput(f"unknown: {', '.join(sorted(set(told) - known))}; known: {', '.join(sorted(known))}")
        return cls(**told)


CALM = Disturbance()


class Relay:
    """The proxy itself; lives in one event loop. ``disturbance`` may be replaced at any time.

    Parameters
    ----------
    upstream : ``host:port``, or the path of a unix socket
    seed : of the jitter and of the losses
    """

    def __init__(self, upstream: str, seed: int = 0) -> None:
        self.disturbance = CALM
        self._upstream = upstream
        self._rng: random.Random = seeds.stream(seed, "proxy")
        self._open: set[asyncio.StreamWriter] = set()

    def disturb(self, disturbance: Disturbance) -> None:
        self.disturbance = disturbance
        if disturbance.refuse:
            for writer in list(self._open):
                reset(writer)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until either side ends."""
        if self.disturbance.refuse:
            return reset(writer)
        try:
            up_reader, up_writer = await self._connect()
        except OSError:
            return reset(writer)
        pair = {writer, up_writer}
        self._open |= pair
        try:
            await asyncio.gather(
                self._pump(reader, up_writer, pair, is_answer=False),
                self._pump(up_reader, writer, pair, is_answer=True),
            )
        finally:
            self._open -= pair
            for each in pair:
                each.transport.abort()  # does nothing to one that was closed in good order

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if "/" in self._upstream:
            return await asyncio.open_unix_connection(self._upstream)
        host, port = address(self._upstream)
        return await asyncio.open_connection(host, port)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        *,
        is_answer: bool,
    ) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while chunk := await reader.read(_CHUNK):
                await self._wait(len(chunk))
                passed += len(chunk)
                limit = self.disturbance.cut_after_bytes
                over = passed - limit if is_answer and limit else 0
                if over > 0:
                    writer.write(chunk[: len(chunk) - over])
                    await writer.drain()
                if over > 0 or self._is_lost():
                    for each in pair:
                        reset(each)
                    return
                writer.write(chunk)
                await writer.drain()
        if not writer.is_closing():
            writer.close()

    async def _wait(self, n_bytes: int) -> None:
        told = self.disturbance
        delay_s = (told.delay_ms + told.jitter_ms * self._rng.random()) / 1e3
        if told.bytes_per_s:
            delay_s += n_bytes / told.bytes_per_s
        if delay_s:
            await asyncio.sleep(delay_s)
        while self.disturbance.stall:
            await asyncio.sleep(_TICK_S)

    def _is_lost(self) -> bool:
        return self.disturbance.loss > 0 and self._rng.random() < self.disturbance.loss


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection by RST: the peer sees an error at once, not the polite end of a stream."""
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Proxy:
    """A relay in a thread of this process, on a free loopback port."""

    def __init__(self, upstream: str, seed: int = 0) -> None:
        self.port = 0
        self._relay = Relay(upstream, seed)
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        if not self._ready.wait(_START_S):
            raise Unavailable("the proxy did not start")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_S)

    def disturb(self, disturbance: Disturbance) -> None:
        """In force when this returns."""

        async def change() -> None:
            self._relay.disturb(disturbance)

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(_START_S)

    @contextlib.contextmanager
    def disturbed(self, disturbance: Disturbance) -> Iterator[None]:
        """Disturb for as long as the with-block lasts."""
        self.disturb(disturbance)
        try:
            yield
        finally:
            self.disturb(CALM)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._relay.serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            self._loop.run_forever()
        finally:
            self._end(server)

    def _end(self, server: asyncio.Server) -> None:
        """Nothing stays open: no connection, no task, no socket of the loop."""

        async def end() -> None:
            server.close()
            tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # aborted transports close their sockets in the next turn of the loop

        self._loop.run_until_complete(end())
        self._loop.close()


def address(text: str) -> tuple[str, int]:
    """``host:port`` as its parts."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise InvalidInput(f"address={text!r} must be host:port")
    return host, int(port)


async def admin(relay: Relay, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request of the admin port: shows the disturbance, or replaces it."""
    status, body = 200, ""
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        if head.startswith(b"POST"):
            fields = (line.split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
            length = next((int(v) for n, v in fields if n.strip().lower() == b"content-length"), 0)
            told = await asyncio.wait_for(reader.readexactly(min(length, _CHUNK)), 5)
            relay.disturb(Disturbance.of(json.loads(told)))
        body = json.dumps(dataclasses.asdict(relay.disturbance))
    except (InvalidInput, ValueError, TypeError) as error:
        status, body = 400, json.dumps({"error": str(error)})
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        return writer.close()
    data = body.encode()
    writer.write(b"HTTP/1.0 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(data)))
    writer.write(data)
    with contextlib.suppress(OSError):
        await writer.drain()
    writer.close()


def seed_from_environment() -> int:
    """``SEED``; an empty one is none, because make exports a knob that is not set as an empty one."""
    asked = os.environ.get("SEED") or "0"
    if not (asked.isascii() and asked.isdigit()):
        raise InvalidInput(f"SEED={asked} must be an integer >= 0 (seed of a proxy)")
    return int(asked)


async def _serve(listen: tuple[str, int], upstream: str, admin_at: tuple[str, int]) -> None:
    relay = Relay(upstream, seed_from_environment())
    front = await asyncio.start_server(relay.serve, *listen)
    back = await asyncio.start_server(lambda r, w: admin(relay, r, w), *admin_at)
    at, told = (server.sockets[0].getsockname() for server in (front, back))  # a port 0 is one that was free
    print(f"listening on {at[0]}:{at[1]}, to {upstream}, orders at {told[0]}:{told[1]}", flush=True)
    await asyncio.gather(front.serve_forever(), back.serve_forever())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m testbed.faults.proxy", description=__doc__)
    parser.add_argument("--listen", default="127.0.0.1:6380", help="host:port of the proxy")
    parser.add_argument("--to", default="", help="host:port of the server behind it, or the path of a unix socket")
    parser.add_argument("--admin", default="127.0.0.1:8474", help="host:port of the admin interface")
    parser.add_argument("--check", default="", help="only ask the admin interface at host:port whether it answers")
    args = parser.parse_args(argv)
    try:
        if args.check:
            with urlopen(f"http://{args.check}/", timeout=3) as answer:
                return 0 if answer.status == 200 else 1
        if not args.to:
            raise InvalidInput("--to is missing: the server behind the proxy")
        asyncio.run(_serve(address(args.listen), args.to, address(args.admin)))
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except (OSError, KeyboardInterrupt) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
