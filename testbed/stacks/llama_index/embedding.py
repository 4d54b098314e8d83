"""Our encoder as LlamaIndex's embedding model, and a splitter that keeps documents whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.node_parser import TextSplitter
from llama_index.core.schema import BaseNode

from testbed.core.ports import Role, Vectors

BATCH = 512  # texts an encoding call; the encoder's rows do not depend on it, its speed does


class RoleEmbedding(BaseEmbedding):
    """One encoder in one role, for one tenant.

    LlamaIndex's cache cannot tell a query from a passage with the same text: each role has a model of its own, with a
    cache store of its own. ``fingerprint`` is a field and not private, because IngestionCache hashes the fields: an
    encoder that changed under an unchanged name must not find its predecessor's vectors there.

    Parameters
    ----------
    encode : texts -> (n_texts, dim) float32, asked at every call
    fields : those of BaseEmbedding, and ``role`` and ``fingerprint``
    """

    role: Role
    fingerprint: str
    embeddings_cache: Any = Field(default=None, exclude=True)  # excluded: where a vector is kept does not change it
    _encode: Callable[[list[str]], Vectors] = PrivateAttr()

    def __init__(self, encode: Callable[[list[str]], Vectors], **fields: Any) -> None:
        super().__init__(embed_batch_size=BATCH, **fields)
        self._encode = encode

    @classmethod
    def class_name(cls) -> str:
        return "RoleEmbedding"

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._encode(texts).tolist()  # type: ignore[no-any-return]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embeddings([query])[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class WholeDocument(TextSplitter):
    """One node a document, under the document's id, text untouched.

    The reference stack embeds whole documents too, so that rankings can be compared. LlamaIndex's own splitters need a
    tokenizer and a sentence model, and give every node a new uuid4.
    """

    def __init__(self) -> None:
        super().__init__(id_func=same_id, include_prev_next_rel=False)

    @classmethod
    def class_name(cls) -> str:
        return "WholeDocument"

    def split_text(self, text: str) -> list[str]:
        return [text]


def same_id(i: int, doc: BaseNode) -> str:
    return doc.node_id
