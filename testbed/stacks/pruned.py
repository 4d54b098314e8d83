"""A service that reads a tenant's page once and answers questions about it from the KV cache, which is pruned.

The cache is the runner's sliding-sparse one over a model that can look things up (``models.runner.lookup``); the page
is read before anybody has asked, each question is a turn of its own. Needs the extra ``runner``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from testbed.caches.memory import MemoryCache
from testbed.core.errors import Unsupported
from testbed.core.ports import Cache
from testbed.core.types import Answer, Doc, Key, Query, Source, Upgrade
from testbed.corpora import pages
from testbed.models.runner.lookup import LookupModel
from testbed.models.runner.policy import Policy
from testbed.stacks import wrapping
from testbed.stacks.parts import Parts
from testbed.stacks.pipeline import RecordTexts, passage_value
from testbed.stacks.source import Source as Record

LAYERS = ("kv", "text")
CHUNK = 64
# A quarter of a page of 512 words on the device; what is pruned waits in host memory for a question that wants it.
POLICY = Policy(window=64, block=8, sink=8, max_blocks=8, observe=16, host_blocks=1024, recall=2)
EVERYTHING = {"threshold": 0.0, "max_blocks": None, "host_blocks": 0}


def build(parts: Parts) -> PrunedStack:
    """A new, empty stack."""
    return PrunedStack()


class PrunedStack:
    """``policy_of(query)`` says how the cache that answers a question was pruned: what faults and fixes change."""

    def __init__(self) -> None:
        self.source = Record()
        self.layers: dict[str, Cache] = {"text": MemoryCache()}
        self.policy_of: Callable[[Query], Policy] = lambda query: POLICY
        self._model = LookupModel(pages.KEYS, pages.VALUES, pages.WORDS)
        self._read: dict[tuple[str, Policy], Any] = {}
        self._said: dict[tuple[tuple[str, Policy], str], str] = {}  # no answer changes what was read

    def upsert(self, docs: Iterable[Doc]) -> None:
        for doc in docs:
            self.source.upsert([doc])
            self.layers["text"].put(Key.of(doc=doc.id), passage_value(doc))

    def delete(self, ids: Iterable[str]) -> None:
        gone = list(ids)
        self.source.delete(gone)
        for doc_id in gone:
            self.layers["text"].delete(Key.of(doc=doc_id))

    def upgrade(self, upgrade: Upgrade) -> None:
        raise Unsupported("the stack has no encoder to upgrade")

    def ask(self, query: Query) -> Answer:
        doc_id = f"{query.tenant}-page"
        value = self.layers["text"].get(Key.of(doc=doc_id))
        if value is None:
            return Answer("The page is gone.", (), abstained=True)
        at = value["text"], self.policy_of(query)
        if at not in self._read:
            self._read[at] = self._model.read(*at, CHUNK)
        if (at, query.text) not in self._said:
            self._said[at, query.text] = self._model.ask(self._read[at], query.text)
        return Answer(self._said[at, query.text], (doc_id,), (Source(doc_id, value["version"], value["text"]),))

    def describe(self) -> list[dict[str, str]]:
        return [{"model": "lookup", "fingerprint": self._model.fingerprint[:12], "tokenizer": "words"}]

    @contextmanager
    def without(self, layer: str) -> Iterator[None]:
        """A cache that keeps every row; texts that come from the record."""
        if layer == "kv":
            with wrapping.attribute(self, "policy_of", lambda inner: lambda query: replace(inner(query), **EVERYTHING)):
                yield
        elif layer == "text":
            with wrapping.cache(self, "text", lambda inner: RecordTexts(self.source, inner)):
                yield
        else:
            raise Unsupported(f"layer={layer!r} is not one of {', '.join(LAYERS)}")

    def close(self) -> None:
        self._model.close()
