"""Texts, their change log and the pointer to the published snapshot, in a server that speaks the Redis protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import redis

from testbed.core.errors import Unavailable
from testbed.core.ports import Row
from testbed.stores.dual import Item, Text

# Each Lua script runs whole or not at all as seen by others; what it writes is one unit in the append-only file.
# KEYS: log, then one text per document. ARGV: per document its id, version, and five fields as name and value.
_COMMIT = """
local done = 0
for i = 2, #KEYS do
  local at = (i - 2) * 12
  local held = tonumber(redis.call('HGET', KEYS[i], 'version') or '-1')
  if held <= tonumber(ARGV[at + 2]) then
    redis.call('DEL', KEYS[i])
    redis.call('HSET', KEYS[i], 'version', ARGV[at + 2], unpack(ARGV, at + 3, at + 12))
    redis.call('XADD', KEYS[1], '*', 'doc', ARGV[at + 1])
    done = done + 1
  end
end
return done
"""
# KEYS: log, texts. ARGV: ids.
_REMOVE = """
for i = 2, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('XADD', KEYS[1], '*', 'doc', ARGV[i - 1])
end
return #KEYS - 1
"""
# KEYS: fence, pointer. ARGV: the caller's fence, snapshot, cursor, incarnation.
_PUBLISH = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], 'snapshot', ARGV[2], 'cursor', ARGV[3], 'incarnation', ARGV[4])
return 1
"""
_PAGE = 500
_CONNECT_S = 5.0
ANSWER_S = 15.0

START = "0-0"  # the cursor before the first change


class Pointer(NamedTuple):
    """Which snapshot is in force, up to which change of which incarnation of the log it goes."""

    snapshot: str
    cursor: str
    incarnation: str


class TextStore:
    """Texts by document id, below ``namespace``; with ``commit``, each together with its entry in the change log.

    Parameters
    ----------
    client : redis-py client, bytes in and out; owned by the caller
    namespace : prefix of every key, ends with ``:``; nobody else may write below it
    """

    def __init__(self, client: redis.Redis, namespace: str) -> None:
        self._client: Any = client
        self._namespace = namespace
        self._commit = client.register_script(_COMMIT)
        self._remove = client.register_script(_REMOVE)
        self._publish = client.register_script(_PUBLISH)

    @classmethod
    def at(cls, url: str, namespace: str, answer_s: float = ANSWER_S) -> TextStore:
        """A store at a URL, over a connection of its own: waits ``answer_s`` for an answer, never tries again."""
        client = redis.Redis.from_url(
            url, socket_connect_timeout=min(answer_s, _CONNECT_S), socket_timeout=answer_s, retry=None, protocol=2
        )
        return cls(client, namespace)

    def close(self) -> None:
        self._client.close()

    def clear(self) -> None:
        """Remove every key of the namespace."""
        with self._answering():
            for key in list(self._client.scan_iter(match=_escaped(self._namespace) + "*", count=_PAGE)):
                self._client.unlink(key)

    # -- texts ------------------------------------------------------------------------------------------------------

    def put(self, text: Text) -> None:
        """Replace one text, and nothing else."""
        with self._answering():
            self._client.hset(self._key(text.doc_id), mapping=_fields(text))

    def drop(self, doc_id: str) -> None:
        with self._answering():
            self._client.unlink(self._key(doc_id))

    def find(self, doc_id: str) -> Text | None:
        with self._answering():
            held = self._client.hgetall(self._key(doc_id))
        return _text(doc_id, held) if held else None

    def row(self, doc_id: str) -> Row | None:
        """The vector half that ``commit`` stored beside the text."""
        with self._answering():
            held = self._client.hgetall(self._key(doc_id))
        return _row(_text(doc_id, held), held) if held and b"vector" in held else None

    def all(self) -> Mapping[str, Text]:
        """Every text, by id, sorted."""
        prefix = self._key("")
        with self._answering():
            keys = self._client.scan_iter(match=_escaped(prefix) + "*", count=_PAGE)
            ids = sorted(k[len(prefix.encode()) :].decode() for k in keys)
            return {i: _text(i, held) for i in ids if (held := self._client.hgetall(self._key(i)))}

    # -- the change log ---------------------------------------------------------------------------------------------

    def commit(self, items: Sequence[Item]) -> int:
        """Text, vector and log entry of each document, atomically for the whole batch; returns how many were news.

        A version older than the one held changes nothing: a late writer cannot set a document back.
        """
        if not items:
            return 0
        keys = [self._key("", "log"), *(self._key(i.text.doc_id) for i in items)]
        with self._answering():
            return int(self._commit(keys=keys, args=[a for i in items for a in _packed(i)]))

    def remove(self, ids: Sequence[str]) -> None:
        """Delete texts, with an entry in the log for each."""
        if ids:
            with self._answering():
                self._remove(keys=[self._key("", "log"), *(self._key(i) for i in ids)], args=list(ids))

    def changes(self, after: str) -> Iterator[tuple[str, str]]:
        """(position, document id) of every change after a position, in order."""
        while True:
            with self._answering():
                page = self._client.xrange(self._key("", "log"), min=f"({after}", count=_PAGE)
            if not page:
                return
            for position, entry in page:
                after = position.decode()
                yield after, entry[b"doc"].decode()

    def incarnation(self) -> str:
        """Names this life of the data: another one after all was lost, so that an old cursor is not believed.

        A counter alone would start again and meet the cursor from below; the server's clock at the first call does not.
        """
        with self._answering():
            seconds, micros = self._client.time()
            self._client.set(self._key("", "incarnation"), f"{seconds}.{micros:06d}", nx=True)
            return str(self._client.get(self._key("", "incarnation")).decode())

    def end(self) -> str:
        """Position of the newest change, trimmed or not."""
        with self._answering():
            if not self._client.exists(self._key("", "log")):
                return START
            return str(self._client.xinfo_stream(self._key("", "log"))["last-generated-id"].decode())

    def is_kept(self, cursor: str) -> bool:
        """Whether every change after this position is still in the log."""
        with self._answering():
            if not self._client.exists(self._key("", "log")):
                return cursor == START
            told = self._client.xinfo_stream(self._key("", "log"))
        dropped = told.get("max-deleted-entry-id", b"0-0").decode()
        return position(dropped) <= position(cursor) <= position(told["last-generated-id"].decode())

    def trim(self, cursor: str) -> None:
        """Drop the changes up to this position: the published snapshot holds them."""
        ms, _, n = cursor.partition("-")
        with self._answering():
            self._client.xtrim(self._key("", "log"), minid=f"{ms}-{int(n) + 1}", approximate=False)

    # -- the published snapshot -------------------------------------------------------------------------------------

    def take_fence(self) -> str:
        """A number higher than every other: its holder is the one publisher, and earlier holders are none any more."""
        with self._answering():
            return str(self._client.incr(self._key("", "fence")))

    def publish(self, fence: str, pointer: Pointer) -> bool:
        """Put a snapshot in force; False, and nothing changed, when somebody took the fence since."""
        keys = [self._key("", "fence"), self._key("", "pointer")]
        with self._answering():
            return bool(self._publish(keys=keys, args=[fence, *pointer]))

    def published(self) -> Pointer | None:
        with self._answering():
            held = self._client.hgetall(self._key("", "pointer"))
        return Pointer(*(held[n.encode()].decode() for n in Pointer._fields)) if held else None

    # -- streams of the published commit-hook design ------------------------------------------------------------------

    def send(self, text: Text) -> None:
        """Append a whole text to the stream of the commit hook."""
        with self._answering():
            self._client.xadd(self._key("", "hook"), {"doc": text.doc_id, **_fields(text)})

    def sent(self, after: str) -> list[tuple[str, Text]]:
        with self._answering():
            page = self._client.xrange(self._key("", "hook"), min=f"({after}")
        return [(p.decode(), _text(e[b"doc"].decode(), e)) for p, e in page]

    def last_sent(self) -> str:
        with self._answering():
            page = self._client.xrevrange(self._key("", "hook"), count=1)
        return str(page[0][0].decode()) if page else START

    # -- keys and errors ----------------------------------------------------------------------------------------------

    def _key(self, doc_id: str, kind: str = "text") -> str:
        return f"{self._namespace}{kind}:{doc_id}" if kind == "text" else f"{self._namespace}{kind}"

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except redis.RedisError as error:
            raise Unavailable(f"redis stopped answering (texts {self._namespace}): {error}") from error


def _escaped(prefix: str) -> str:
    return "".join("\\" + c if c in "*?[]^\\" else c for c in prefix)


def position(cursor: str) -> tuple[int, int]:
    """A stream position as numbers that compare."""
    ms, _, n = cursor.partition("-")
    return int(ms), int(n or 0)


def url_of(client: redis.Redis) -> str:
    """The URL under which another process reaches the server that this client talks to."""
    told = client.connection_pool.connection_kwargs
    secret = f"{quote(told.get('username') or '')}:{quote(told['password'])}@" if told.get("password") else ""
    if told.get("path"):
        return f"unix://{secret}{told['path']}?db={told.get('db', 0) or 0}"
    return f"redis://{secret}{told.get('host', 'localhost')}:{told.get('port', 6379)}/{told.get('db', 0) or 0}"


def _fields(text: Text) -> dict[str, str | bytes]:
    raw = text.text.encode("utf-8", "surrogatepass")
    return {"version": str(text.version), "tenant": text.tenant, "text": raw, "refs": json.dumps(text.refs)}


def _packed(each: Item) -> list[str | bytes]:
    """Arguments of _COMMIT for one document."""
    fields = _fields(each.text)
    version = fields.pop("version")
    fields |= {"made_by": each.row.made_by, "vector": each.row.vector.astype("<f4").tobytes()}
    return [each.text.doc_id, version, *(x for pair in fields.items() for x in pair)]


def _text(doc_id: str, held: Mapping[bytes, bytes]) -> Text:
    text = held[b"text"].decode("utf-8", "surrogatepass")
    return Text(doc_id, int(held[b"version"]), held[b"tenant"].decode(), text, tuple(json.loads(held[b"refs"])))


def _row(text: Text, held: Mapping[bytes, bytes]) -> Row:
    vector = np.frombuffer(held[b"vector"], dtype="<f4").astype(np.float32)
    return Row(text.doc_id, text.version, text.tenant, vector, held[b"made_by"].decode(), text.digest)
