"""The pipeline with LlamaIndex between the caches and the index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.ingestion import IngestionCache, IngestionPipeline
from llama_index.core.schema import Document

from testbed.caches.redis import RedisCache
from testbed.caches.semantic import SemanticCache
from testbed.core import digest
from testbed.core.ports import Role, Vectors
from testbed.core.types import Doc, Key, Query
from testbed.stacks import reference
from testbed.stacks.llama_index.embedding import RoleEmbedding, WholeDocument
from testbed.stacks.llama_index.index import TENANT, VERSION, PartsVectorStore, of_tenant
from testbed.stacks.llama_index.kvstore import EmbeddingStore, IngestionStore
from testbed.stacks.parts import Parts
from testbed.stacks.pipeline import Pipeline

BATCH = 256  # documents a run of the ingestion pipeline: its cache keeps all nodes of a run in one entry


@dataclass(frozen=True, slots=True)
class Desk:
    """LlamaIndex's objects for one tenant under one encoder.

    They are per tenant because LlamaIndex hands its caches a text and nothing else: who is served has to be bound
    before. They are per encoder because the embedding model's fields, which IngestionCache hashes, are fixed.
    """

    ingestion: IngestionPipeline
    retriever: BaseRetriever


class LlamaIndexStack(Pipeline):
    """Documents go through an IngestionPipeline with an IngestionCache into a vector store; questions go through a
    VectorStoreIndex's retriever, whose embedding model has an embedding cache.

    The caches are the layers ``ingestion`` and ``embedding``, behind ``BaseKVStore``; the vector store is ``index``.
    Answer, retrieval and text layers, which LlamaIndex has no counterpart for, are the pipeline's own, and so is the
    reader. A run of the ingestion pipeline takes documents of one tenant, and its ``cache_collection`` is the
    digest of their ids, versions and texts: see ``IngestionStore`` for what happens without.
    """

    semantic: SemanticCache

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self._store = PartsVectorStore(self)
        self._desks: dict[tuple[str, str], Desk] = {}
        # LlamaIndex wants a model for the whole index; the retrievers bring one of their tenant, which is what is used.
        self._vectors = VectorStoreIndex.from_vector_store(
            self._store, embed_model=self._model("", "query"), transformations=[WholeDocument()]
        )

    def index_docs(self, docs: Sequence[Doc]) -> None:
        by_tenant: dict[str, list[Doc]] = {}
        for doc in docs:
            by_tenant.setdefault(doc.tenant, []).append(doc)
        for tenant, mine in by_tenant.items():
            for start in range(0, len(mine), BATCH):
                batch = mine[start : start + BATCH]
                documents = [document(d) for d in batch]
                self._desk(tenant).ingestion.run(documents=documents, cache_collection=batch_name(batch))

    def delete(self, ids: Iterable[str]) -> None:
        gone = list(ids)
        self.source.delete(gone)
        for doc_id in gone:
            self._vectors.delete_ref_doc(doc_id)
        for doc_id in gone:
            self.layers["text"].delete(Key.of(doc=doc_id))

    def retrieve(self, query: Query) -> list[str]:
        key = self.retrieval_key(query)
        cached = self.layers["retrieval"].get(key)
        if cached is None:
            nodes = self._desk(query.tenant).retriever.retrieve(query.text)
            cached = {"ranking": [[n.node_id, n.get_score(raise_error=True)] for n in nodes]}
            self.layers["retrieval"].put(key, cached)
        return [doc_id for doc_id, _ in cached["ranking"]]

    def _desk(self, tenant: str) -> Desk:
        at = (tenant, self.encoder.fingerprint)
        if at not in self._desks:
            self._desks[at] = Desk(
                IngestionPipeline(
                    transformations=[WholeDocument(), self._model(tenant, "document")],
                    cache=IngestionCache(cache=self._ingestion_store(tenant)),
                    vector_store=self._store,
                ),
                self._vectors.as_retriever(
                    similarity_top_k=self.k, filters=of_tenant(tenant), embed_model=self._model(tenant, "query")
                ),
            )
        return self._desks[at]

    def _model(self, tenant: str, role: Role) -> RoleEmbedding:
        def encode(texts: list[str]) -> Vectors:
            inputs = [self.expanded(text, tenant) for text in texts] if role == "query" else texts
            return self.encoder.encode(inputs, role)

        cache = EmbeddingStore(
            lambda: self.layers["embedding"], lambda text, collection: self.embedding_key(text, tenant, role)
        )
        return RoleEmbedding(
            encode,
            model_name=self.encoder.name,
            role=role,
            fingerprint=self.encoder.fingerprint,
            embeddings_cache=cache,
        )

    def _ingestion_store(self, tenant: str) -> IngestionStore:
        return IngestionStore(
            lambda: self.layers["ingestion"],
            lambda step, batch: Key.of(batch=batch, tenant=tenant, step=step),
        )


def document(doc: Doc) -> Document:
    """The document with its tenant and version as metadata that is filtered by and hashed, but not embedded."""
    metadata = {VERSION: doc.version, TENANT: doc.tenant}
    return Document(id_=doc.id, text=doc.text, metadata=metadata, excluded_embed_metadata_keys=list(metadata))


def batch_name(docs: Sequence[Doc]) -> str:
    """Digest of everything that is ingested together, 32 hex digits: ids, versions and texts, in their order."""
    return digest.of_parts((f"{d.version}:{d.id}", d.text) for d in docs)


def build(parts: Parts) -> LlamaIndexStack:
    """A new, empty stack: the reference stack's own parts, and an ingestion layer in Redis."""
    same = reference.build(parts)
    ingestion = RedisCache(parts.redis, f"{parts.namespace}ingestion:", parts.clock)
    stack = LlamaIndexStack(
        layers={**same.layers, "ingestion": ingestion},
        index=same.index,
        encoder=same.encoder,
        build_encoder=parts.build_encoder,
        blank_index=parts.new_index,
        reader=same.reader,
        glossary=parts.glossary,
        k=same.k,
        on_close=same.close,
    )
    stack.semantic = same.semantic
    return stack
