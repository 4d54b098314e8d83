"""Search in Chroma: one collection per tenant, in process or on a server."""

from __future__ import annotations

import itertools
import re
import secrets
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import chromadb
import numpy as np
from chromadb.config import Settings
from chromadb.errors import NotFoundError

from testbed.core import digest
from testbed.core.errors import InvalidInput, Unavailable
from testbed.core.ports import Hit, Row, RowInfo, Vectors
from testbed.stores.exact import admitted, best, check_dim, stacked

# With Chroma's defaults the same data built twice gives 197-199 of 200 equal top-10 lists; with these, 200.
_HNSW = {"space": "ip", "ef_construction": 400, "ef_search": 400, "max_neighbors": 64}
_CANDIDATES = 32  # fetched at least, whatever k
_BATCH = 1000
_serial = itertools.count(1)  # two indexes of one process never share a collection


class ChromaIndex:
    """Candidates from Chroma's HNSW graph, scores and order as ``ExactIndex`` makes them.

    What Chroma returns is fetched with its embeddings, scored again in float64 and cut to k. So scores, ties and order
    equal the reference whenever the k best are among the candidates. That is how it was at every test up to 5,000 rows
    a tenant, but a graph search is no proof: larger collections can miss a row, and gates should run on Faiss.

    Collections belong to this instance alone and are deleted by ``close``, at garbage collection or at exit. Not
    thread-safe.
    """

    def __init__(self, client: Any, namespace: str = "") -> None:
        self._client = client
        self._namespace = namespace
        # On a shared server the random part keeps runs apart; names are never recorded.
        self._prefix = f"{_as_name(namespace)}-{secrets.token_hex(6)}-{next(_serial)}"
        self._collections: dict[str, Any] = {}
        self._home: dict[str, str] = {}  # doc id -> tenant
        self._dim: int | None = None  # of a collection once it has held a row, also when it is empty again
        self._created: list[str] = []
        self._drop = weakref.finalize(self, _drop, client, self._created)

    @classmethod
    def at(cls, url: str = "", namespace: str = "") -> ChromaIndex:
        """An empty index on the server at ``url`` (``http://host:port``), or in this process when it is empty."""
        return cls(_server(url) if url else chromadb.EphemeralClient(Settings(anonymized_telemetry=False)), namespace)

    def upsert(self, rows: Sequence[Row]) -> None:
        latest = admitted(rows, self._dim)
        self._dim = next((row.vector.size for row in latest.values()), self._dim)
        self.delete([i for i, row in latest.items() if self._home.get(i, row.tenant) != row.tenant])
        by_tenant: dict[str, list[Row]] = {}
        for row in latest.values():
            by_tenant.setdefault(row.tenant, []).append(row)
            self._home[row.doc_id] = row.tenant
        for tenant, added in by_tenant.items():
            collection = self._collection(tenant)
            for some in _batches(added):
                collection.upsert(
                    ids=[r.doc_id for r in some],
                    embeddings=np.stack([r.vector for r in some]),
                    metadatas=[{"version": r.version, "made_by": r.made_by, "text": r.text_digest} for r in some],
                )

    def delete(self, ids: Sequence[str]) -> None:
        by_tenant: dict[str, list[str]] = {}
        for doc_id in ids:
            tenant = self._home.pop(doc_id, None)
            if tenant is not None:
                by_tenant.setdefault(tenant, []).append(doc_id)
        for tenant, gone in by_tenant.items():
            for some in _batches(gone):
                self._collections[tenant].delete(ids=list(some))

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        if k < 1:
            raise InvalidInput(f"k={k} must be >= 1 (search of an index)")
        if self._dim is not None:
            check_dim(vector, self._dim)
        tenants = sorted(self._collections) if tenant is None else [tenant]
        found = [c for t in tenants if t in self._collections for c in self._candidates(t, vector, k)]
        return best(*stacked(sorted(found, key=lambda c: c[0])), vector, k)

    def _candidates(self, tenant: str, vector: Vectors, k: int) -> list[tuple[str, Vectors]]:
        found = self._collections[tenant].query(
            query_embeddings=vector.reshape(1, -1), n_results=max(_CANDIDATES, 4 * k), include=["embeddings"]
        )
        vectors = np.asarray(found["embeddings"][0], dtype=np.float32)
        return list(zip(found["ids"][0], vectors, strict=True))

    def rows(self) -> Mapping[str, RowInfo]:
        held: dict[str, RowInfo] = {}
        for tenant, collection in self._collections.items():
            found = collection.get(include=["metadatas"])
            for doc_id, meta in zip(found["ids"], found["metadatas"], strict=True):
                held[doc_id] = RowInfo(int(meta["version"]), tenant, meta["made_by"], meta["text"])
        return dict(sorted(held.items()))

    def fresh(self) -> ChromaIndex:
        return ChromaIndex(self._client, self._namespace)

    def close(self) -> None:
        """Delete this instance's collections; the index is empty afterwards."""
        _drop(self._client, self._created)
        self._collections.clear()
        self._home.clear()
        self._dim = None

    def _collection(self, tenant: str) -> Any:
        if tenant not in self._collections:
            name = f"{self._prefix}-{digest.of_text(tenant)}"
            self._created.append(name)
            self._collections[tenant] = self._client.create_collection(
                name, configuration={"hnsw": _HNSW}, embedding_function=None
            )
        return self._collections[tenant]


def _drop(client: Any, names: list[str]) -> None:
    while names:
        try:
            client.delete_collection(names.pop())
        except NotFoundError:
            continue


def _batches(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))


def _as_name(namespace: str) -> str:
    """What Chroma allows in a collection's name; never empty."""
    return "testbed-" + re.sub(r"[^A-Za-z0-9]+", "-", namespace).strip("-")[:80] if namespace else "testbed"


def _server(url: str) -> Any:
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 8000)
    except ValueError:
        raise InvalidInput("CHROMA_URL is not a URL; expected http://host:port or https://host") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        where = f"{parts.scheme or '(no scheme)'}://{parts.hostname or '...'}"
        raise InvalidInput(f"CHROMA_URL={where}: expected http://host:port or https://host")
    settings = Settings(anonymized_telemetry=False)
    try:
        return chromadb.HttpClient(parts.hostname, port, ssl=parts.scheme == "https", settings=settings)
    except Exception as error:  # the client raises ValueError, httpx errors and its own, by version
        raise Unavailable(
            f"chroma is not reachable at {parts.hostname}:{port} (CHROMA_URL); start it or unset CHROMA_URL"
        ) from error
