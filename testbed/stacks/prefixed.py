"""A service of one language model with a prefix cache: each prompt is the tenant's handbook, a page, and the question.

No retrieval: a question names its page. What is under test is the layer between two prompts that begin alike, so the
model is a toy (``models.runner.toy``) and an answer is right when it is what the model says without that layer.
Needs the extra ``runner``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from testbed.caches import many
from testbed.caches.memory import MemoryCache
from testbed.core.errors import Unsupported
from testbed.core.ports import Cache
from testbed.core.types import Answer, Doc, Key, Query, Source, Upgrade
from testbed.corpora import prompts
from testbed.corpora.prompts import PromptCorpus
from testbed.models.runner import toy
from testbed.models.runner.engine import Engine
from testbed.models.runner.layered import BlockCache, LayeredPrefix
from testbed.models.runner.local import LocalModel
from testbed.models.runner.prefix import PrefixCache
from testbed.models.runner.steps import StepMemo, SteppedModel
from testbed.models.runner.weights import Loaded
from testbed.stacks.parts import Parts
from testbed.stacks.pipeline import Bypassed, RecordTexts, passage_value
from testbed.stacks.source import Source as Record

LAYERS = ("prefix", "text")
BLOCK = 16
# Three prompts of four blocks on the device, and all that there is (some 150 blocks) in the outer tier.
SLOTS, OUTER_SLOTS = 14, 256
BLOCK_BYTES = 2 * 2 * 2 * 16 * 4 * BLOCK  # layers, keys and values, heads, channels, float32
NEW_TOKENS = 4
STEPS = StepMemo(10_000)  # of all arms of a process, some 35 MB when full


def build(parts: Parts) -> PrefixedStack:
    """A new, empty stack."""
    return PrefixedStack(parts)


def corpus() -> PromptCorpus:
    """The prompts, with the answers of a model that keeps nothing."""
    return PromptCorpus(Recomputed())


def model() -> Loaded:
    return toy.load([word for text in prompts.texts() for word in toy.words_of(text)])


class PrefixedStack:
    """``prefix`` is the cache of KV blocks itself: what faults weaken and fixes mend."""

    def __init__(self, parts: Parts) -> None:
        self.source = Record()
        self.loaded = replace(plain := model(), model=SteppedModel(plain.model, STEPS))
        self.prefix = PrefixCache(SLOTS * BLOCK_BYTES, block=BLOCK, outer_bytes=OUTER_SLOTS * BLOCK_BYTES)
        self.layers: dict[str, Cache] = {
            "prefix": BlockCache(self.prefix, self.loaded.tokenizer),
            "text": MemoryCache(),
        }
        self._learn = parts.learn
        self._reading: list[tuple[int, Source]] = []  # where each document begins in the prompt
        self._found = LayeredPrefix(BLOCK, self.loaded.tokenizer, self._get_blocks, self._put_blocks, self._described)
        self._engine = Engine(self.loaded, prefix_cache=self._found)
        self._model = LocalModel(self._engine)

    def upsert(self, docs: Iterable[Doc]) -> None:
        for doc in docs:
            self.source.upsert([doc])
            if doc.kind == "adapter":
                self._engine.add_adapter(toy.adapter(doc.title, doc.text, self.loaded))
            else:
                self.layers["text"].put(Key.of(doc=doc.id), passage_value(doc))

    def delete(self, ids: Iterable[str]) -> None:
        gone = list(ids)
        self.source.delete(gone)
        for doc_id in gone:
            self.layers["text"].delete(Key.of(doc=doc_id))

    def upgrade(self, upgrade: Upgrade) -> None:
        raise Unsupported("the stack has no encoder to upgrade")

    def ask(self, query: Query) -> Answer:
        client = prompts.CLIENTS[query.tenant]
        ids = [f"{query.tenant}-handbook", f"{query.tenant}-{prompts.page_of(query.text)}"]
        read = [self._passage(doc_id) for doc_id in ids]
        begin, self._reading = 1, []
        for source in read:
            self._reading.append((begin, source))
            begin += len(toy.words_of(source.text))
        uses_adapter = client.uses_adapter(query.session)
        if uses_adapter:
            doc = self.source.find(prompts.ADAPTER_DOC)
            if doc is not None:
                self._reading.append((0, Source(doc.id, doc.version, doc.text)))
        self._model.salt, self._model.adapter = client.salt, prompts.ADAPTER if uses_adapter else ""
        said = self._model.complete(" ".join([*(s.text for s in read), query.text]), max_tokens=NEW_TOKENS)
        sources = [*self._of_used(), *(source for _, source in self._reading)]
        return Answer(said.text.strip(), tuple(reversed(ids)), tuple(dict.fromkeys(sources)))

    def _get_blocks(self, keys: Sequence[Key]) -> list[Any | None]:
        return many.get_many(self.layers["prefix"], keys)

    def _put_blocks(self, items: Sequence[tuple[Key, Any]]) -> None:
        many.put_many(self.layers["prefix"], items)

    def _passage(self, doc_id: str) -> Source:
        value = self.layers["text"].get(Key.of(doc=doc_id))
        return Source(doc_id, 0, "") if value is None else Source(doc_id, value["version"], value["text"])

    def _of_used(self) -> list[Source]:
        """What the blocks were made from that this prompt was read with."""
        return [Source(*source) for value in self._found.used for source in value.get("sources", ())]

    def _described(self, rows: Any, end: int) -> dict[str, Any]:
        """What a block that is computed now is made from: the blocks before it, and the documents that it covers."""
        self._learn(rows, self.loaded.fingerprint, "block")
        own = [source for begin, source in self._reading if begin < end]
        return {"sources": [list(s) for s in sorted({*self._of_used(), *own})]}

    # -- what the harness asks of a stack ---------------------------------------------------------------------------

    def describe(self) -> list[dict[str, str]]:
        return [{"model": self.loaded.name, "fingerprint": self.loaded.fingerprint[:12], "tokenizer": "words"}]

    @contextmanager
    def without(self, layer: str) -> Iterator[None]:
        """A prefix cache that never hits; texts that come from the record."""
        if layer not in self.layers:
            raise Unsupported(f"layer={layer!r} is not one of {', '.join(LAYERS)}")
        inner = self.layers[layer]
        self.layers[layer] = Bypassed(inner) if layer == "prefix" else RecordTexts(self.source, inner)
        try:
            yield
        finally:
            self.layers[layer] = inner

    def close(self) -> None:
        self._model.close()


class Recomputed:
    """What the model says to a prompt that it reads in one piece, with no cache from anywhere."""

    def __init__(self) -> None:
        self._texts = {d.id: d.text for d in PromptCorpus(lambda query, versions: "").docs}

    def __call__(self, query: Query, versions: Mapping[str, int]) -> str:
        page = self._texts[f"{query.tenant}-{prompts.page_of(query.text)}"]
        text = f"{self._texts[f'{query.tenant}-handbook']} {page} {query.text}"
        uses = prompts.CLIENTS[query.tenant].uses_adapter(query.session)
        return _say(text, prompts.adapter_text(versions[prompts.ADAPTER_DOC]) if uses else "")


@cache  # of all runs of a process: there are as many answers as questions and weights, and nothing else moves them
def _say(text: str, weights: str) -> str:
    loaded = model()
    engine = Engine(loaded)
    local = LocalModel(engine)
    if weights:
        engine.add_adapter(toy.adapter(prompts.ADAPTER, weights, loaded))
        local.adapter = prompts.ADAPTER
    try:
        return local.complete(text, max_tokens=NEW_TOKENS).text.strip()
    finally:
        local.close()
