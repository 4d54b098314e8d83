"""The stack's own index as a LlamaIndex vector store, so that every store and every fault on it applies here too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)

from testbed.core import digest
from testbed.core.errors import BrokenContract
from testbed.core.ports import Encoder, Index, Row

TENANT, VERSION = "tenant", "version"  # metadata of every node; neither is embedded


class Serving(Protocol):
    """What is in force: read at every call, so that an index or encoder that is exchanged is the one that is used."""

    index: Index
    encoder: Encoder


class PartsVectorStore(BasePydanticVectorStore):
    """A vector store that asks ``serving.index``.

    Nodes come in with their vectors and carry tenant and version as metadata. A query is a dense one, cut to one
    tenant by an equality filter (no filter: all tenants). Nodes come back in the index's order (score descending, then
    id ascending) with its scores, and without text: texts have a layer of their own.
    """

    stores_text: bool = True  # else VectorStoreIndex would keep a list of all node ids and ask a docstore for the texts
    _serving: Serving = PrivateAttr()

    def __init__(self, serving: Serving) -> None:
        super().__init__(stores_text=True)
        self._serving = serving

    @classmethod
    def class_name(cls) -> str:
        return "PartsVectorStore"

    @property
    def client(self) -> Index:
        return self._serving.index

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        self._serving.index.upsert([row_of(node, self._serving.encoder.fingerprint) for node in nodes])
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        self._serving.index.delete([ref_doc_id])

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        vector = np.asarray(dense(query), dtype=np.float32)
        made_by = self._serving.encoder.fingerprint
        tenant = filtered_tenant(query.filters)
        hits = self._serving.index.search(vector, tenant=tenant, k=query.similarity_top_k, made_by=made_by)
        return VectorStoreQueryResult(
            nodes=[found(h.doc_id) for h in hits], similarities=[h.score for h in hits], ids=[h.doc_id for h in hits]
        )


def row_of(node: BaseNode, made_by: str) -> Row:
    return Row(
        doc_id=node.ref_doc_id or node.node_id,
        version=node.metadata[VERSION],
        tenant=node.metadata[TENANT],
        vector=np.asarray(node.get_embedding(), dtype=np.float32),
        made_by=made_by,
        text_digest=digest.of_text(node.get_content(metadata_mode=MetadataMode.EMBED)),
    )


def found(doc_id: str) -> TextNode:
    return TextNode(id_=doc_id, relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc_id)})


def of_tenant(tenant: str) -> MetadataFilters:
    """The filter that cuts a query to one tenant."""
    return MetadataFilters(filters=[MetadataFilter(key=TENANT, value=tenant, operator=FilterOperator.EQ)])


def filtered_tenant(filters: MetadataFilters | None) -> str | None:
    """The tenant of ``of_tenant(tenant)``; None without a filter. A filter that cannot be honoured is not ignored."""
    match filters.filters if filters is not None else []:
        case []:
            return None
        case [MetadataFilter(key="tenant", operator=FilterOperator.EQ, value=str(tenant))]:
            return tenant
    raise BrokenContract(f"filters={filters!r} must be one equality on the tenant (stacks/llama_index/index.py)")


def dense(query: VectorStoreQuery) -> list[float]:
    """The vector of a query that asks for nothing but nearest neighbours."""
    if query.mode is not VectorStoreQueryMode.DEFAULT or query.query_embedding is None:
        raise BrokenContract(f"mode={query.mode.value} must be dense, with a vector (stacks/llama_index/index.py)")
    if query.node_ids or query.doc_ids:
        raise BrokenContract("a search cannot be restricted to given nodes (stacks/llama_index/index.py)")
    return query.query_embedding
