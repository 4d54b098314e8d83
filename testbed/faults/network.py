"""The wire between the writer and Redis is cut, and mended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from testbed.core.errors import Unavailable
from testbed.core.ports import Context
from testbed.faults.proxy import Disturbance, Proxy
from testbed.stacks import dual
from testbed.stores.dual import Item


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The writer cannot reach Redis while it writes a batch; the wire is mended before the next question.

    A real connection through a real proxy that resets it. What the writer raises for is delivered again after the
    mending, as a queue does; what it swallows is not. The level is the share of batches that meet the cut wire. The
    first load is never disturbed.

    References
    ----------
    langchain-ai/langchain #40226: a failed upsert is not looked at, the stores stay apart for good.
    """

    name: str = "partitioned"
    needs: frozenset[str] = frozenset({"index", "layers.text", "redis"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        if ctx.level == 0:
            yield
            return
        with dual.kept(stack) as stores, Proxy(upstream_of(stores.url)) as proxy:
            direct = stores.url

            def cut(batch: list[Item], number: int) -> None:
                with proxy.disturbed(Disturbance(refuse=True)):
                    try:
                        stores.write(batch)
                        acknowledged = True
                    except Unavailable:
                        acknowledged = False
                stores.check(f"wire {number} mended")
                if not acknowledged and stores.writer.takes_redelivery:
                    stores.write(batch)

            stores.reach(through(direct, proxy.port))
            try:
                with dual.struck(stores, ctx, self.name, cut):
                    yield
            finally:
                stores.reach(direct)


def upstream_of(url: str) -> str:
    """Where a Redis URL points, as a proxy takes it: ``host:port``, or the path of a socket."""
    parts = urlsplit(url)
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"


def through(url: str, port: int) -> str:
    """The same server, reached on a loopback port."""
    parts = urlsplit(url)
    secret = f"{parts.username or ''}:{parts.password}@" if parts.password else ""
    database = "0" if parts.scheme == "unix" else parts.path.strip("/") or "0"
    return f"redis://{secret}127.0.0.1:{port}/{database}"
