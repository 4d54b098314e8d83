"""The reference stack: real parts, correct keys. What every fault and fix is measured against."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from testbed.caches.gate import same_numbers_negations_entities
from testbed.caches.redis import RedisCache
from testbed.caches.semantic import SemanticCache
from testbed.caches.tiered import TieredCache
from testbed.core.ports import Cache, Vectors
from testbed.models.reader import ExtractiveReader
from testbed.stacks.parts import Parts
from testbed.stacks.pipeline import Pipeline

# On the ledger, wordings of one question have a median similarity of 0.82 and other questions go up to 0.855: no
# threshold separates them, so this one is low and the gate decides.
SEMANTIC_THRESHOLD = 0.85
SEMANTIC_CAPACITY = 4096


class ReferenceStack(Pipeline):
    """Faiss (or Chroma) for vectors, Redis for texts and exact caches, a semantic second level in process."""

    semantic: SemanticCache
    tiers: MutableMapping[str, Cache]  # of the answer cache: "l1" exact, "l2" semantic
    redis: Any  # client of the server that holds texts and caches, for what keeps more there
    namespace: str


def build(parts: Parts) -> ReferenceStack:
    """A new, empty reference stack."""

    def redis_cache(layer: str) -> RedisCache:
        return RedisCache(parts.redis, f"{parts.namespace}{layer}:", parts.clock)

    encoder = parts.build_encoder(parts.encoder)

    def embed(text: str) -> Vectors:
        vector: Vectors = encoder.encode([text], "query")[0]
        return vector

    semantic = SemanticCache(embed, SEMANTIC_THRESHOLD, same_numbers_negations_entities, SEMANTIC_CAPACITY)
    answer = TieredCache(
        {"l1": parts.traced("answer.l1", redis_cache("answer")), "l2": parts.traced("answer.l2", semantic)}
    )
    layers: dict[str, Cache] = {
        "answer": answer,
        "retrieval": redis_cache("retrieval"),
        "embedding": redis_cache("embedding"),
        "text": redis_cache("text"),
    }
    stack = ReferenceStack(
        layers=layers,
        index=parts.new_index(),
        encoder=encoder,
        build_encoder=parts.build_encoder,
        blank_index=parts.new_index,
        reader=ExtractiveReader(),
        glossary=parts.glossary,
    )
    stack.semantic, stack.tiers = semantic, answer.tiers
    stack.redis, stack.namespace = parts.redis, parts.namespace
    return stack
