"""The pipeline under test: answer cache, retrieval cache, embedding cache, index, texts, reader.

``ask`` goes down only as far as it must, and fills on the way back::

    question -> answer -> retrieval -> embedding -> encoder
                                    -> index     -> text -> reader

Every cache key holds everything that its value depends on: the whole point of the clean stack, and what faults undo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

from testbed.caches import many
from testbed.core import digest
from testbed.core.errors import Unsupported
from testbed.core.ports import Cache, Encoder, Hit, Index, Passage, Reader, Role, Row, RowInfo, Vectors
from testbed.core.types import Answer, Doc, Key, Query, Source, Upgrade
from testbed.stacks.context import AuthenticatedContext, RequestContext
from testbed.stacks.source import Source as Record

LAYERS = ("answer", "retrieval", "embedding", "index", "text")


class Pipeline:
    """A retrieval-augmented service over named, replaceable parts.

    Parameters
    ----------
    layers : caches by name: ``answer``, ``retrieval``, ``embedding``, ``text``
    index : vectors, partitioned by tenant
    encoder : the encoder in force
    build_encoder : name -> encoder, for deployments of another one
    blank_index : an exact index to search the record with, when the index is bypassed
    glossary : per tenant, what its words stand for: added to a question before it is embedded
    k : passages retrieved per question
    """

    def __init__(
        self,
        *,
        layers: MutableMapping[str, Cache],
        index: Index,
        encoder: Encoder,
        build_encoder: Callable[[str], Encoder],
        blank_index: Callable[[], Index],
        reader: Reader,
        glossary: Mapping[str, Mapping[str, str]],
        k: int = 5,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.layers = layers
        self.index = index
        self.encoder = encoder
        self.reader = reader
        self.source = Record()
        self.context: RequestContext = AuthenticatedContext()
        self.k = k
        self.blank_index = blank_index
        self._build_encoder = build_encoder
        self._glossary = glossary
        self._seen: dict[str, Encoder] = {encoder.fingerprint: encoder}
        self._on_close = on_close

    # -- the corpus side ------------------------------------------------------------------------------------------

    def upsert(self, docs: Iterable[Doc]) -> None:
        batch = list(docs)
        self.source.upsert(batch)
        self.index_docs(batch)
        many.put_many(self.layers["text"], [(Key.of(doc=d.id), passage_value(d)) for d in batch])

    def delete(self, ids: Iterable[str]) -> None:
        gone = list(ids)
        self.source.delete(gone)
        self.index.delete(gone)
        for doc_id in gone:
            self.layers["text"].delete(Key.of(doc=doc_id))

    def upgrade(self, upgrade: Upgrade) -> None:
        """Deploy another encoder under the same model name: queries use it from now on, the index is made anew."""
        self.encoder = self._build_encoder(upgrade.encoder)
        self._seen[self.encoder.fingerprint] = self.encoder
        self.index_docs(self.source.docs())

    def index_docs(self, docs: Sequence[Doc]) -> None:
        """Embed documents through the embedding cache and put their rows into the index."""
        vectors = self.vectors([(d.text, d.tenant) for d in docs], "document")
        self.index.upsert(rows_of(docs, vectors, self.encoder))

    # -- the question side ----------------------------------------------------------------------------------------

    def ask(self, query: Query) -> Answer:
        key = self.answer_key(query)
        cached = self.layers["answer"].get(key)
        if cached is not None:
            return answer_of(cached)
        answer = self.answer(query)
        self.layers["answer"].put(key, answer_value(answer))
        return answer

    def answer(self, query: Query) -> Answer:
        """Retrieve and read, without the answer cache."""
        ranking = self.retrieve(query)
        passages = self.passages(ranking)
        linked = self.passages(sorted({r for p in passages for r in p.refs} - {p.doc_id for p in passages}))
        read = self.reader.read(
            self.expanded(query.text, query.tenant), passages, {p.doc_id: p for p in (*passages, *linked)}
        )
        sources = tuple(Source(p.doc_id, p.version, p.text) for p in (*passages, *linked))
        return Answer(read.text, tuple(ranking), sources, read.abstained)

    def retrieve(self, query: Query) -> list[str]:
        """Document ids for the question, best first, through the retrieval cache."""
        key = self.retrieval_key(query)
        cached = self.layers["retrieval"].get(key)
        if cached is not None:
            return [doc_id for doc_id, _ in cached["ranking"]]
        vector = self.vectors([(query.text, query.tenant)], "query")[0]
        hits = self.search(vector, query.tenant)
        self.layers["retrieval"].put(key, {"ranking": [[h.doc_id, h.score] for h in hits]})
        return [h.doc_id for h in hits]

    def search(self, vector: Vectors, tenant: str) -> list[Hit]:
        return self.index.search(vector, tenant=tenant, k=self.k, made_by=self.encoder.fingerprint)

    def vectors(self, texts: Sequence[tuple[str, str]], role: Role) -> list[Vectors]:
        """Vectors for (text, tenant) pairs, through the embedding cache; what is missing is encoded in one call."""
        layer = self.layers["embedding"]
        keys = [self.embedding_key(text, tenant, role) for text, tenant in texts]
        found: list[Vectors | None] = many.get_many(layer, keys)
        missing = [i for i, v in enumerate(found) if v is None]
        if missing:
            inputs = [self.expanded(*texts[i]) if role == "query" else texts[i][0] for i in missing]
            made = list(zip(missing, self.encoder.encode(inputs, role), strict=True))
            many.put_many(layer, [(keys[i], vector) for i, vector in made])
            for i, vector in made:
                found[i] = vector
        return [v for v in found if v is not None]

    def expanded(self, text: str, tenant: str) -> str:
        return expanded(text, self._glossary.get(tenant, {}))

    def passages(self, ids: Iterable[str]) -> list[Passage]:
        """Texts of documents from the text layer; a document whose text is gone is left out."""
        wanted = list(ids)
        values = many.get_many(self.layers["text"], [Key.of(doc=i) for i in wanted])
        return [
            Passage(i, v["version"], v["text"], tuple(v["refs"]))
            for i, v in zip(wanted, values, strict=True)
            if v is not None
        ]

    # -- keys -----------------------------------------------------------------------------------------------------

    def answer_key(self, query: Query) -> Key:
        tenant = self.context.tenant_of(query)
        return Key.of(
            text=query.text,
            tenant=tenant,
            model=self.encoder.fingerprint[:12],
            prompt=self.reader.name,
            epoch=str(self.source.epoch(tenant)),
        )

    def retrieval_key(self, query: Query) -> Key:
        return Key.of(
            text=query.text,
            tenant=query.tenant,
            model=self.encoder.fingerprint[:12],
            k=str(self.k),
            epoch=str(self.source.epoch(query.tenant)),
        )

    def embedding_key(self, text: str, tenant: str, role: Role) -> Key:
        return Key.of(text=text, tenant=tenant, model=self.encoder.fingerprint[:12], role=role)

    # -- what the harness asks of a stack ---------------------------------------------------------------------------

    def describe(self) -> list[dict[str, str]]:
        """One row per encoder seen so far, the one in force last: name, fingerprint, tokenizer."""
        rows = [e for fp, e in self._seen.items() if fp != self.encoder.fingerprint] + [self.encoder]
        return [{"model": e.name, "fingerprint": e.fingerprint[:12], "tokenizer": e.tokenizer} for e in rows]

    @contextmanager
    def without(self, layer: str) -> Iterator[None]:
        """Serve as if a layer were not there: a cache never hits, the index and the texts come from the record."""
        if layer == "index":
            before = self.index
            self.index = RecordIndex(self, before)
            try:
                yield
            finally:
                self.index = before
        elif layer in self.layers:
            inner = self.layers[layer]
            self.layers[layer] = RecordTexts(self.source, inner) if layer == "text" else Bypassed(inner)
            try:
                yield
            finally:
                self.layers[layer] = inner
        else:
            raise Unsupported(f"layer={layer!r} is not one of {', '.join(LAYERS)}")

    def close(self) -> None:
        self._on_close()


class Bypassed:
    """A cache that is written but never read, so that whatever it holds does no harm and no good."""

    def __init__(self, inner: Cache) -> None:
        self._inner = inner

    def get(self, key: Key) -> Any | None:
        return None

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(key)

    def fresh(self) -> Bypassed:
        return Bypassed(self._inner.fresh())


class RecordTexts(Bypassed):
    """Texts straight from the system of record."""

    def __init__(self, source: Record, inner: Cache) -> None:
        super().__init__(inner)
        self._source = source

    def get(self, key: Key) -> Any | None:
        doc = self._source.find(key.get("doc"))
        return None if doc is None else passage_value(doc)


class RecordIndex:
    """Search over the asker's documents as they are now, embedded by the encoder in force: what an index should say.

    The bypassed index is still written, as in a shadow deployment.
    """

    def __init__(self, pipeline: Pipeline, inner: Index) -> None:
        self._pipeline = pipeline
        self._inner = inner
        self._made_by = ""
        self._by_tenant: dict[str | None, Index] = {}

    def upsert(self, rows: Sequence[Row]) -> None:
        self._by_tenant.clear()
        self._inner.upsert(rows)

    def delete(self, ids: Sequence[str]) -> None:
        self._by_tenant.clear()
        self._inner.delete(ids)

    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]:
        encoder = self._pipeline.encoder
        if self._made_by != encoder.fingerprint:
            self._by_tenant.clear()
            self._made_by = encoder.fingerprint
        if tenant not in self._by_tenant:
            self._by_tenant[tenant] = self._built(encoder, self._pipeline.source.docs(tenant=tenant))
        return self._by_tenant[tenant].search(vector, tenant=tenant, k=k, made_by=made_by)

    def _built(self, encoder: Encoder, docs: list[Doc]) -> Index:
        index = self._pipeline.blank_index()
        index.upsert(rows_of(docs, encoder.encode([d.text for d in docs], "document"), encoder))
        return index

    def rows(self) -> Mapping[str, RowInfo]:
        return self._inner.rows()

    def fresh(self) -> RecordIndex:
        return RecordIndex(self._pipeline, self._inner.fresh())


def expanded(question: str, glossary: Mapping[str, str]) -> str:
    """The question with a tenant's own names for its things added, as query rewriting does."""
    lower = question.lower()
    names = [name for term, name in sorted(glossary.items()) if term.lower() in lower]
    return f"{question} ({', '.join(names)})" if names else question


def rows_of(docs: Sequence[Doc], vectors: Iterable[Vectors], encoder: Encoder) -> list[Row]:
    """Index rows for documents and their vectors, in the same order."""
    return [
        Row(d.id, d.version, d.tenant, v, encoder.fingerprint, digest.of_text(d.text))
        for d, v in zip(docs, vectors, strict=True)
    ]


def passage_value(doc: Doc) -> dict[str, Any]:
    return {"text": doc.text, "version": doc.version, "refs": list(doc.refs)}


def answer_value(answer: Answer) -> dict[str, Any]:
    """The cached form of an answer; ``sources`` is its provenance, which invalidation by document needs."""
    return {
        "text": answer.text,
        "ranking": list(answer.ranking),
        "sources": [list(s) for s in answer.sources],
        "abstained": answer.abstained,
    }


def answer_of(value: Mapping[str, Any]) -> Answer:
    return Answer(
        value["text"],
        tuple(value["ranking"]),
        tuple(Source(i, v, t) for i, v, t in value["sources"]),
        value["abstained"],
    )
