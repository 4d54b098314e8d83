"""Probes: see what each layer is asked and what it gives, without the layer knowing.

A probe sits outermost, outside faults and fixes, so it sees the key as the pipeline built it and the value as the
pipeline got it. What a fault does to a key inside shows as a hit under one key of a value that was put under another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Protocol

from testbed.caches import many
from testbed.core import digest
from testbed.core.names import ValueNames
from testbed.core.ports import Cache, Hit, Index, Row, RowInfo, Vectors
from testbed.core.types import Event, EventKind, Key


class Sink(Protocol):
    """Where one arm's events, texts and timings go."""

    def event(self, event: Event) -> None: ...
    def text(self, name: str, text: str) -> None: ...
    def timing(self, op: int, layer: str, kind: str, ns: int) -> None: ...


class Recorder:
    """The current op and its time, and the one way into the trace."""

    def __init__(self, sink: Sink, names: ValueNames, now: Callable[[], float]) -> None:
        self.op = 0
        self.names = names
        self._sink = sink
        self._now = now

    def event(
        self,
        layer: str,
        kind: EventKind,
        key: Mapping[str, str],
        value: str = "",
        data: Mapping[str, object] | None = None,
    ) -> None:
        self._sink.event(Event(self.op, self._now(), layer, kind, key, value, data or {}))

    def text(self, text: str) -> str:
        """Remember a text; returns its name in the trace."""
        name = digest.of_text(text)
        self._sink.text(name, text)
        return name

    def started(self) -> int:
        return perf_counter_ns()

    def timing(self, layer: str, kind: str, started_ns: int) -> None:
        """Wall clock since ``started_ns``: goes beside the trace, never into it."""
        self._sink.timing(self.op, layer, kind, perf_counter_ns() - started_ns)

    def key(self, key: Key) -> dict[str, str]:
        """The parts of a key as they are recorded: the text by its name."""
        return {n: self.text(v) if n == "text" else v for n, v in key.parts}


class TracedCache:
    def __init__(self, inner: Cache, layer: str, recorder: Recorder) -> None:
        self._inner = inner
        self._layer = layer
        self._recorder = recorder

    def get(self, key: Key) -> Any | None:
        started = perf_counter_ns()
        value = self._inner.get(key)
        self._recorder.timing(self._layer, "miss" if value is None else "hit", started)
        self._got(key, value)
        return value

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        started = perf_counter_ns()
        self._inner.put(key, value, ttl_s=ttl_s)
        self._recorder.timing(self._layer, "put", started)
        self._event("put", key, value)

    def get_many(self, keys: Sequence[Key]) -> list[Any | None]:
        """As so many gets; the time of the whole stands for all of them."""
        started = perf_counter_ns()
        values = many.get_many(self._inner, keys)
        self._recorder.timing(self._layer, "get-many", started)
        for key, value in zip(keys, values, strict=True):
            self._got(key, value)
        return values

    def put_many(self, items: Sequence[tuple[Key, Any]]) -> None:
        started = perf_counter_ns()
        many.put_many(self._inner, items)
        self._recorder.timing(self._layer, "put-many", started)
        for key, value in items:
            self._event("put", key, value)

    def _got(self, key: Key, value: Any) -> None:
        self._event("miss" if value is None else "hit", key, value)

    def _event(self, kind: EventKind, key: Key, value: Any) -> None:
        parts = self._recorder.key(key)
        name = "" if value is None else self._recorder.names.of(value, parts.get("text", ""))
        self._recorder.event(self._layer, kind, parts, name, versioned(value))

    def delete(self, key: Key) -> None:
        self._inner.delete(key)
        self._recorder.event(self._layer, "delete", self._recorder.key(key))

    def fresh(self) -> TracedCache:
        return TracedCache(self._inner.fresh(), self._layer, self._recorder)


class TracedWrites:
    """Innermost around an index: which vectors really arrive, named by their bytes, whatever their row claims."""

    def __init__(self, inner: Index, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def upsert(self, rows: Sequence[Row]) -> None:
        started = perf_counter_ns()
        self._inner.upsert(rows)
        self._recorder.timing("index", "put", started)
        for row in rows:
            key = {"doc": row.doc_id, "version": str(row.version), "tenant": row.tenant}
            self._recorder.event("index", "put", key, self._recorder.names.of(row.vector, row.text_digest))

    def delete(self, ids: Sequence[str]) -> None:
        self._inner.delete(ids)
        for doc_id in ids:
            self._recorder.event("index", "delete", {"doc": doc_id})

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        return self._inner.search(vector, tenant=tenant, k=k, made_by=made_by)

    def rows(self) -> Mapping[str, RowInfo]:
        return self._inner.rows()

    def fresh(self) -> TracedWrites:
        return TracedWrites(self._inner.fresh(), self._recorder)


class TracedSearch:
    """Outermost around an index: what is asked of it and what the pipeline gets."""

    def __init__(self, inner: Index, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder

    def upsert(self, rows: Sequence[Row]) -> None:
        self._inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self._inner.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        started = perf_counter_ns()
        hits = self._inner.search(vector, tenant=tenant, k=k, made_by=made_by)
        self._recorder.timing("index", "search", started)
        key = {"tenant": "" if tenant is None else tenant, "vector": self._recorder.names.of(vector)}
        self._recorder.event("index", "search", key, "", {"ranking": [[h.doc_id, h.score] for h in hits]})
        return hits

    def rows(self) -> Mapping[str, RowInfo]:
        return self._inner.rows()

    def fresh(self) -> TracedSearch:
        return TracedSearch(self._inner.fresh(), self._recorder)


def versioned(value: Any) -> dict[str, object]:
    """What a text entry says of its revision; nothing for other values."""
    if isinstance(value, dict) and "version" in value:
        return {"version": value["version"], "text": digest.of_text(value["text"])}
    return {}
