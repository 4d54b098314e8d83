"""A cache in a server that speaks the Redis protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import redis

from testbed.caches import codec
from testbed.core.clock import Clock
from testbed.core.errors import Unavailable
from testbed.core.types import Key

_LEFTOVER_S = 7 * 24 * 3600  # longer than any run
_BATCH = 500  # keys per SCAN step and per UNLINK
# What to ask for all that a name holds which is no string, by type.
_READ: Mapping[str, tuple[str, ...]] = {
    "hash": ("HGETALL",),
    "list": ("LRANGE", "0", "-1"),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", "0", "-1"),
    "stream": ("XRANGE", "-", "+"),
}
# Fields that hold positions in a change log: made of the server's clock, and not of one length.
_CLOCKED = (b"cursor", b"incarnation")


class RedisCache:
    """One string per entry, under ``<namespace><digest of the key's parts>``.

    Expiry is logical: it stands inside the entry and is compared with ``clock``, so that a replay an hour later or a
    slow machine sees the same hits. Redis's own TTL only removes, days later, what a killed run left behind.

    Parameters
    ----------
    client : redis-py client with ``decode_responses=False``; owned by the caller
    namespace : prefix of every key, ends with ``:``. Nobody else may write below it.
    clock : logical time
    """

    def __init__(self, client: redis.Redis, namespace: str, clock: Clock) -> None:
        self.namespace = namespace
        self._client = client
        self._clock = clock
        self._n_fresh = 0

    def get(self, key: Key) -> Any | None:
        try:
            entry = self._ask("GET", self.namespace + key.digest())
        except redis.RedisError as error:
            self._lost(error)
        return None if entry is None else codec.unpack(entry, self._clock.now())

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        expires_at_s = math.inf if ttl_s is None else self._clock.now() + ttl_s
        entry = codec.pack(value, expires_at_s)
        try:
            self._ask("SET", self.namespace + key.digest(), entry, "EX", _LEFTOVER_S)
        except redis.RedisError as error:
            self._lost(error)

    def get_many(self, keys: Sequence[Key]) -> list[Any | None]:
        """Values for keys, one round trip for each batch of them."""
        out: list[Any | None] = []
        for start in range(0, len(keys), _BATCH):
            names = [self.namespace + key.digest() for key in keys[start : start + _BATCH]]
            try:
                entries = self._ask("MGET", *names)
            except redis.RedisError as error:
                self._lost(error)
            out += [None if e is None else codec.unpack(e, self._clock.now()) for e in entries]
        return out

    def put_many(self, items: Sequence[tuple[Key, Any]]) -> None:
        """Put without expiry, one round trip for each batch."""
        for start in range(0, len(items), _BATCH):
            batch = {self.namespace + k.digest(): codec.pack(v, math.inf) for k, v in items[start : start + _BATCH]}
            try:
                self._ask("MSET", *(word for pair in batch.items() for word in pair))
            except redis.RedisError as error:
                self._lost(error)

    def delete(self, key: Key) -> None:
        try:
            self._client.unlink(self.namespace + key.digest())
        except redis.RedisError as error:
            self._lost(error)

    def fresh(self) -> RedisCache:
        """An empty cache in a namespace below this one (the n-th call gives the n-th), cleared before use."""
        self._n_fresh += 1
        child = RedisCache(self._client, f"{self.namespace}fresh{self._n_fresh}:", self._clock)
        child.clear()
        return child

    def clear(self) -> None:
        """Remove every entry of this namespace and of those below it."""
        forget(self._client, self.namespace)

    def close(self) -> None:
        """Clear the namespace; the client stays open, it belongs to the caller."""
        self.clear()

    def _ask(self, *words: str | bytes | int) -> Any:
        """One command and its reply.

        Where the client keeps one connection it is used directly: the client's own way there (retries, pools, hooks)
        takes longer than the round trip, and a run makes tens of thousands of them.
        """
        client: Any = self._client
        held = client.connection
        if held is None:
            return client.execute_command(*words)
        held.send_command(*words)
        return held.read_response()

    def _lost(self, error: redis.RedisError) -> NoReturn:
        raise Unavailable(f"redis stopped answering (cache {self.namespace}): {error}; run again") from error


def held_bytes(client: redis.Redis, namespace: str) -> int:
    """Bytes of the names below the namespace, without it, and of what they hold; not the server's own overhead.

    Raises
    ------
    Unavailable : the server does not answer.
    """
    try:
        names = list(dict.fromkeys(client.scan_iter(match=_below(namespace), count=_BATCH)))  # SCAN may say one twice
        held = sum(_held_by(client, names[start : start + _BATCH]) for start in range(0, len(names), _BATCH))
    except redis.RedisError as error:
        raise Unavailable(f"redis did not tell what is held below {namespace}: {error}") from error
    return held + sum(len(name) - len(namespace) for name in names)


def _held_by(client: Any, names: Sequence[Any]) -> int:
    """Nearly all names hold strings; which ones do not, the server says by an error."""
    lengths = _each(client, [("STRLEN", name) for name in names])
    others = [name for name, length in zip(names, lengths, strict=True) if isinstance(length, redis.ResponseError)]
    kinds = _each(client, [("TYPE", name) for name in others])
    reads = [_READ.get(kind.decode(), ("DUMP",)) for kind in kinds]  # DUMP: gone in between, or of a module's own type
    values = _each(client, [(command, name, *rest) for name, (command, *rest) in zip(others, reads, strict=True)])
    return sum(length for length in lengths if isinstance(length, int)) + sum(map(_size, values))


def _each(client: Any, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
    """All replies in one round trip, and where a name holds another type, that error; any other error is raised."""
    with client.pipeline(transaction=False) as asking:
        for words in commands:
            asking.execute_command(*words)
        replies: list[Any] = asking.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, Exception) and not str(reply).startswith("WRONGTYPE"):
            raise reply
    return replies


def _size(reply: Any) -> int:
    """Bytes of a reply, names of fields included; of a stream the entries without their positions."""
    if isinstance(reply, int):
        return reply
    if isinstance(reply, bytes):
        return len(reply)
    if reply is None or isinstance(reply, redis.ResponseError):  # gone, or of another type, in between
        return 0
    if isinstance(reply, Mapping):
        return sum(len(name) + (0 if name in _CLOCKED else len(held)) for name, held in reply.items())
    return sum(_size(each[1]) if isinstance(each, tuple) else _size(each) for each in reply)


def _below(namespace: str) -> str:
    """The pattern of every key that begins with ``namespace``."""
    return "".join("\\" + c if c in "*?[]^\\" else c for c in namespace) + "*"


def forget(client: redis.Redis, namespace: str) -> None:
    """Clear a namespace that nobody needs any more.

    Raises
    ------
    Unavailable : the server does not answer.
    """
    try:
        clear_namespace(client, namespace)
    except redis.RedisError as error:
        raise Unavailable(f"redis stopped answering ({namespace}): {error}; run again") from error


def clear_namespace(client: redis.Redis, namespace: str) -> int:
    """Unlink every key that begins with ``namespace``, step by step (SCAN, never KEYS). Returns how many."""
    n_removed = 0
    batch: list[Any] = []
    for name in client.scan_iter(match=_below(namespace), count=_BATCH):
        batch.append(name)
        if len(batch) >= _BATCH:
            n_removed += int(client.unlink(*batch))
            batch.clear()
    if batch:
        n_removed += int(client.unlink(*batch))
    return n_removed
