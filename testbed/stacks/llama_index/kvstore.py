"""LlamaIndex's cache stores, kept in the layers of a stack.

LlamaIndex caches through ``BaseKVStore``: ``get(key, collection)`` and ``put(key, val, collection)``, where ``key`` is
a bare string. What a value depends on besides that string is not in it: these stores add it, as a typed ``Key``, and so
does every deployment that wants right answers from these caches.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from llama_index.core.ingestion.cache import DEFAULT_CACHE_NAME
from llama_index.core.storage.kvstore.types import DEFAULT_COLLECTION, BaseKVStore

from testbed.core.ports import Cache
from testbed.core.types import Key

EMBEDDINGS = "embeddings"  # the collection that BaseEmbedding names in every call
_NODES = "nodes"  # IngestionCache's name for its list of nodes
_DATA, _VECTOR = "__data__", "embedding"  # where a serialised node holds its fields, and its vector among them


class LayerStore(BaseKVStore):
    """A ``BaseKVStore`` whose entries live in a cache layer.

    The layer is looked up at every call: a stack's layers are wrapped and unwrapped while the store stays in place.

    Parameters
    ----------
    layer : the cache as it is now
    key_of : (LlamaIndex's key, collection) -> everything that the value depends on
    """

    def __init__(self, layer: Callable[[], Cache], key_of: Callable[[str, str], Key]) -> None:
        self._layer = layer
        self._key_of = key_of

    @abstractmethod
    def _cached(self, val: dict[str, Any]) -> Any:
        """LlamaIndex's value as the layer keeps it."""

    @abstractmethod
    def _restored(self, value: Any) -> dict[str, Any]:
        """A value of the layer as LlamaIndex expects it."""

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        value = self._layer().get(self._key_of(key, collection))
        return None if value is None else self._restored(value)

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        self._layer().put(self._key_of(key, collection), self._cached(val))

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        typed = self._key_of(key, collection)
        was_there = self._layer().get(typed) is not None
        self._layer().delete(typed)
        return was_there

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        raise NotImplementedError("a cache layer cannot list its entries, so IngestionCache.clear() cannot work on it")

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> dict[str, Any] | None:
        return self.get(key, collection)

    async def aput(self, key: str, val: dict[str, Any], collection: str = DEFAULT_COLLECTION) -> None:
        self.put(key, val, collection)

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        return self.delete(key, collection)

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, dict[str, Any]]:
        return self.get_all(collection)


class EmbeddingStore(LayerStore):
    """``BaseEmbedding.embeddings_cache`` over an embedding layer.

    LlamaIndex's key is the text as it was given, its value ``{<a new uuid4>: [floats]}``. Neither says which model made
    the vector, in which role (a query or a passage), nor for whom, although all three decide what it is: the model by
    name is not enough when its weights change, and a question is embedded with the asker's own glossary. ``key_of`` has
    to put them in. The layer holds the float32 vector alone, so that a value has one name and the uuid leaves no trace.
    """

    def _cached(self, val: dict[str, Any]) -> Any:
        (vector,) = val.values()
        return np.asarray(vector, dtype=np.float32)

    def _restored(self, value: Any) -> dict[str, Any]:
        return {_VECTOR: value.tolist()}


class IngestionStore(LayerStore):
    """``IngestionCache.cache`` over an ingestion layer.

    LlamaIndex's key is one SHA-256 over the texts and metadata of all nodes, joined without a separator, and the
    transformation's settings. Documents of equal content share it, and what is found brings the *other* document's ids
    along; so do two batches whose texts concatenate to the same. ``key_of`` has to put in which documents are meant:
    callers name them by ``cache_collection``, and the default collection, which names nothing, is refused.

    The layer holds the nodes as JSON and their vectors beside it as float32: no floats in a trace, no lost bits.
    """

    def get(self, key: str, collection: str = DEFAULT_CACHE_NAME) -> dict[str, Any] | None:
        return super().get(key, named(collection))

    def put(self, key: str, val: dict[str, Any], collection: str = DEFAULT_CACHE_NAME) -> None:
        super().put(key, val, named(collection))

    def _cached(self, val: dict[str, Any]) -> Any:
        nodes = [{**node, _DATA: {**node[_DATA], _VECTOR: None}} for node in val[_NODES]]
        vectors = [node[_DATA].get(_VECTOR) for node in val[_NODES]]
        return {
            "nodes": json.dumps(nodes),  # keys in the order given: metadata are hashed in theirs
            "vectors": [None if v is None else np.asarray(v, dtype=np.float32) for v in vectors],
        }

    def _restored(self, value: Any) -> dict[str, Any]:
        nodes = json.loads(value["nodes"])
        for node, vector in zip(nodes, value["vectors"], strict=True):
            node[_DATA][_VECTOR] = None if vector is None else vector.tolist()
        return {_NODES: nodes}


def named(collection: str) -> str:
    if collection in (DEFAULT_CACHE_NAME, DEFAULT_COLLECTION):
        raise ValueError(f"cache_collection={collection!r} does not say which documents are ingested")
    return collection
