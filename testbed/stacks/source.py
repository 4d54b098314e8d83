"""The system of record: the documents as they are now. Caches and indexes derive from it; nothing else is true."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from testbed.core.types import Doc


class Source:
    """Live documents by id, with a corpus epoch per tenant that moves with every mutation after it."""

    def __init__(self) -> None:
        self._docs: dict[str, Doc] = {}
        self._epochs: dict[str, int] = {}
        self._listeners: list[Callable[[str], None]] = []

    def upsert(self, docs: Iterable[Doc]) -> None:
        touched = []
        for doc in docs:
            self._docs[doc.id] = doc
            touched.append(doc)
        self._moved(touched)

    def delete(self, ids: Iterable[str]) -> None:
        self._moved([doc for doc_id in ids if (doc := self._docs.pop(doc_id, None)) is not None])

    def find(self, doc_id: str) -> Doc | None:
        return self._docs.get(doc_id)

    def docs(self, *, tenant: str | None = None, kind: str | None = None) -> list[Doc]:
        """Live documents, sorted by id."""
        return [
            d
            for _, d in sorted(self._docs.items())
            if (tenant is None or d.tenant == tenant) and (kind is None or d.kind == kind)
        ]

    def epoch(self, tenant: str) -> int:
        """How often the documents that this tenant can see have changed; documents without tenant are seen by all."""
        return self._epochs.get(tenant, 0) + (self._epochs.get("", 0) if tenant else 0)

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call ``listener(doc_id)`` after each change of a document; returns the call that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _moved(self, docs: list[Doc]) -> None:
        for tenant in {d.tenant for d in docs}:
            self._epochs[tenant] = self._epochs.get(tenant, 0) + 1
        for doc in docs:
            for listener in list(self._listeners):
                listener(doc.id)
