"""The LlamaIndex stack on fakes: an encoder that hashes, a reader that quotes, caches and an index in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from testbed.caches.memory import MemoryCache
from testbed.core.errors import BrokenContract
from testbed.core.ports import Cache, Passage, Role, Row, Vectors
from testbed.core.seeds import stream
from testbed.core.types import Answer, Doc, Key, Query, Upgrade
from testbed.stacks.pipeline import Pipeline
from testbed.stores.exact import ExactIndex

pytest.importorskip("llama_index.core", reason="needs the llama-index extra")
pytestmark = pytest.mark.llama_index

from llama_index.core.ingestion import IngestionCache, IngestionPipeline  # noqa: E402
from llama_index.core.schema import Document  # noqa: E402
from llama_index.core.vector_stores.types import (  # noqa: E402
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from testbed.stacks.llama_index.embedding import RoleEmbedding, WholeDocument  # noqa: E402
from testbed.stacks.llama_index.index import PartsVectorStore, of_tenant  # noqa: E402
from testbed.stacks.llama_index.kvstore import EmbeddingStore, IngestionStore  # noqa: E402
from testbed.stacks.llama_index.stack import LlamaIndexStack, batch_name  # noqa: E402

DIM = 16
GLOSSARY = {"a": {"gate": "Argon"}, "b": {"gate": "Boron"}}


class Hashing:
    """Any text to a unit vector that only its own text, role and ``salt`` decide."""

    name = "hashing"
    tokenizer = "none"
    dim = DIM

    def __init__(self, salt: str = "one") -> None:
        self.fingerprint = hashlib.sha256(salt.encode()).hexdigest()
        self.calls: list[tuple[str, Role]] = []

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        self.calls += [(text, role) for text in texts]
        return np.stack([self.one(text, role) for text in texts])

    def one(self, text: str, role: Role) -> Vectors:
        raw = hashlib.sha256(f"{self.fingerprint}|{role}|{text}".encode()).digest()
        vector = np.frombuffer(raw, dtype="<u2").astype(np.float32) - 32768
        return vector / np.linalg.norm(vector)


class Quoting:
    """Answers with the first passage, word for word."""

    name = "quoting"

    def read(self, question: str, passages: Sequence[Passage], linked: Mapping[str, Passage]) -> Answer:
        return Answer(passages[0].text if passages else "unknown", (), (), not passages)


class Recording:
    """A memory cache that remembers what was put under which key, and which keys were found."""

    def __init__(self) -> None:
        self.inner = MemoryCache()
        self.puts: dict[Key, Any] = {}
        self.hits: list[Key] = []

    def get(self, key: Key) -> Any | None:
        value = self.inner.get(key)
        if value is not None:
            self.hits.append(key)
        return value

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self.puts[key] = value
        self.inner.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self.inner.delete(key)

    def fresh(self) -> Recording:
        return Recording()


def parts(encoder: Hashing, layers: Sequence[str]) -> dict[str, Any]:
    caches: dict[str, Cache] = {layer: Recording() for layer in layers}
    return {
        "layers": caches,
        "index": ExactIndex(),
        "encoder": encoder,
        "build_encoder": Hashing,
        "blank_index": ExactIndex,
        "reader": Quoting(),
        "glossary": GLOSSARY,
    }


@pytest.fixture
def stack() -> Iterator[LlamaIndexStack]:
    built = LlamaIndexStack(**parts(Hashing(), ("answer", "retrieval", "embedding", "text", "ingestion")))
    yield built
    built.close()


def layer(stack: Pipeline, name: str) -> Recording:
    found = stack.layers[name]
    assert isinstance(found, Recording)
    return found


def corpus(n: int) -> list[Doc]:
    return [Doc(f"d{i:03}", f"passage number {i}", "ab"[i % 2]) for i in range(n)]


# -- the embedding cache --------------------------------------------------------------------------------------------


def test_a_vector_comes_back_from_the_cache_bit_for_bit_and_is_kept_as_float32(stack: LlamaIndexStack) -> None:
    model = stack._model("a", "query")
    first = model.get_query_embedding("where is the gate")
    again = model.get_query_embedding("where is the gate")
    made = stack.encoder.encode(["where is the gate (Argon)"], "query")[0]
    assert np.asarray(first, np.float32).tobytes() == np.asarray(again, np.float32).tobytes() == made.tobytes()
    (kept,) = layer(stack, "embedding").puts.values()
    assert kept.dtype == np.float32 and kept.tobytes() == made.tobytes()


def test_a_cached_text_is_not_encoded_again(stack: LlamaIndexStack) -> None:
    model = stack._model("a", "document")
    model.get_text_embedding_batch(["x", "y"])
    model.get_text_embedding_batch(["y", "z"])
    assert isinstance(stack.encoder, Hashing)
    assert stack.encoder.calls == [("x", "document"), ("y", "document"), ("z", "document")]


def test_the_typed_key_tells_roles_tenants_and_encoders_apart(stack: LlamaIndexStack) -> None:
    first = stack.encoder.fingerprint[:12]
    for tenant in ("a", "b"):
        for role in ("query", "document"):
            stack._model(tenant, role).get_text_embedding("gate")
    stack.upgrade(Upgrade("two"))
    stack._model("a", "query").get_text_embedding("gate")
    keys = [dict(key.parts) for key in layer(stack, "embedding").puts]
    assert [(k["tenant"], k["role"], k["model"] == first) for k in keys] == [
        ("a", "query", True),
        ("a", "document", True),
        ("b", "query", True),
        ("b", "document", True),
        ("a", "query", False),
    ]
    assert {k["text"] for k in keys} == {"gate"}
    assert layer(stack, "embedding").hits == []


def test_the_store_asks_the_layer_that_is_in_place_at_the_call(stack: LlamaIndexStack) -> None:
    model = stack._model("a", "query")
    model.get_query_embedding("x")
    stack.layers["embedding"] = other = Recording()
    model.get_query_embedding("x")
    assert len(other.puts) == 1


def test_async_calls_reach_the_same_entries() -> None:
    cache = Recording()
    store = EmbeddingStore(lambda: cache, lambda text, collection: Key.of(text=text))

    async def calls() -> tuple[Any, bool, bool, Any]:
        await store.aput("x", {"some-uuid": [1.0, 0.5]}, "embeddings")
        found = await store.aget("x", "embeddings")
        return found, await store.adelete("x"), await store.adelete("x"), await store.aget("x")

    assert asyncio.run(calls()) == ({"embedding": [1.0, 0.5]}, True, False, None)
    with pytest.raises(NotImplementedError, match="cannot list"):
        store.get_all()


# -- the ingestion cache ----------------------------------------------------------------------------------------------


def twins() -> list[Document]:
    return [Document(id_=i, text="same words") for i in ("doc-a", "doc-b")]


def bare(text: str) -> list[float]:
    return [float(len(text)), 1.0]


def ids_after_runs(cache: IngestionCache, batches: Sequence[tuple[list[Document], str | None]]) -> list[list[str]]:
    pipeline = IngestionPipeline(transformations=[WholeDocument()], cache=cache)
    runs = [pipeline.run(documents=docs, cache_collection=collection) for docs, collection in batches]
    return [[str(n.ref_doc_id) for n in nodes] for nodes in runs]


def test_without_the_typed_key_a_document_gets_the_nodes_of_its_twin() -> None:
    """The defect that the store is there for, in LlamaIndex's own in-memory cache."""
    a, b = twins()
    assert ids_after_runs(IngestionCache(), [([a], None), ([b], None)]) == [["doc-a"], ["doc-a"]]


def test_without_the_typed_key_batches_that_concatenate_to_the_same_text_are_taken_for_each_other() -> None:
    first = [Document(id_="d1", text="ab"), Document(id_="d2", text="c")]
    other = [Document(id_="d3", text="a"), Document(id_="d4", text="bc")]
    assert ids_after_runs(IngestionCache(), [(first, None), (other, None)]) == [["d1", "d2"], ["d1", "d2"]]


def test_with_the_typed_key_each_document_keeps_its_own_nodes() -> None:
    cache = Recording()
    store = IngestionStore(lambda: cache, lambda step, batch: Key.of(step=step, batch=batch))
    a, b = twins()
    runs = [([a], "doc-a"), ([b], "doc-b"), ([a], "doc-a")]
    assert ids_after_runs(IngestionCache(cache=store), runs) == [["doc-a"], ["doc-b"], ["doc-a"]]
    assert [key.get("batch") for key in cache.hits] == ["doc-a"]


def test_a_run_that_does_not_say_which_documents_it_ingests_is_refused() -> None:
    store = IngestionStore(MemoryCache, lambda step, batch: Key.of(step=step, batch=batch))
    with pytest.raises(ValueError, match="cache_collection='llama_cache'"):
        ids_after_runs(IngestionCache(cache=store), [(twins(), None)])


def test_batches_are_named_by_ids_versions_and_texts() -> None:
    batches = [
        [Doc("x", "ab"), Doc("y", "c")],
        [Doc("x", "a"), Doc("y", "bc")],
        [Doc("x", "ab"), Doc("z", "c")],
        [Doc("x", "ab", version=2), Doc("y", "c")],
        [Doc("y", "c"), Doc("x", "ab")],
    ]
    assert len({batch_name(b) for b in batches}) == len(batches)


def test_documents_of_equal_text_are_indexed_under_their_own_ids_and_tenants(stack: LlamaIndexStack) -> None:
    stack.upsert([Doc("a1", "same words", "a"), Doc("b1", "same words", "b")])
    stack.upsert([Doc("a2", "same words", "a", version=3)])
    held = stack.index.rows()
    assert {i: (r.tenant, r.version) for i, r in held.items()} == {"a1": ("a", 1), "a2": ("a", 3), "b1": ("b", 1)}


def test_what_was_ingested_before_is_not_transformed_again(stack: LlamaIndexStack) -> None:
    docs = corpus(6)
    stack.index_docs(docs)
    put = dict(layer(stack, "ingestion").puts)
    stack.index_docs(docs)
    assert len(put) == 4  # two tenants, two transformations
    assert layer(stack, "ingestion").hits == list(put)
    assert layer(stack, "embedding").hits == []


def test_vectors_from_the_ingestion_cache_are_bit_identical(stack: LlamaIndexStack) -> None:
    doc = Doc("d", "some words", "a")
    stack.index_docs([doc])
    expected = stack.encoder.encode([doc.text], "document")[0]
    stack.index = seen = Rows()
    stack.index_docs([doc])
    assert len(layer(stack, "ingestion").hits) == 2
    assert [row.vector.tobytes() for row in seen.given] == [expected.tobytes()]


class Rows(ExactIndex):
    def __init__(self) -> None:
        super().__init__()
        self.given: list[Row] = []

    def upsert(self, rows: Sequence[Row]) -> None:
        self.given += rows
        super().upsert(rows)


def test_another_encoder_under_the_same_name_finds_split_nodes_but_no_vectors(stack: LlamaIndexStack) -> None:
    docs = [Doc("d", "some words", "a")]
    stack.upsert(docs)
    stack.upgrade(Upgrade("two"))
    assert stack.encoder.name == Hashing().name
    assert len(layer(stack, "ingestion").hits) == 1  # the splitter's
    assert [r.made_by for r in stack.index.rows().values()] == [Hashing("two").fingerprint]
    hit = stack.index.search(Hashing("two").one("some words", "document"), tenant="a", k=1, made_by="")
    assert hit[0].score == pytest.approx(1.0)


def test_the_model_that_ingestion_hashes_has_no_address_and_no_store_in_it() -> None:
    def model(layer: Recording) -> RoleEmbedding:
        store = EmbeddingStore(lambda: layer, lambda text, collection: Key.of(text=text))
        return RoleEmbedding(
            lambda texts: np.asarray([bare(t) for t in texts], np.float32),
            model_name="m",
            role="document",
            fingerprint="f",
            embeddings_cache=store,
        )

    one, other = model(Recording()).to_dict(), model(Recording()).to_dict()
    assert one == other
    assert " at 0x" not in str(one)
    assert one["fingerprint"] == "f"


# -- the vector store ----------------------------------------------------------------------------------------


def rows(vectors: Mapping[str, tuple[str, list[float]]]) -> list[Row]:
    return [Row(i, 1, t, np.asarray(v, np.float32), "f", "") for i, (t, v) in vectors.items()]


def searched(stack: LlamaIndexStack, **query: Any) -> list[tuple[str, float]]:
    result = PartsVectorStore(stack).query(VectorStoreQuery(query_embedding=[1.0, 0.0], **query))
    assert result.nodes is not None and result.similarities is not None
    assert [n.node_id for n in result.nodes] == [n.ref_doc_id for n in result.nodes] == result.ids
    return list(zip(result.ids, result.similarities, strict=True))


@pytest.fixture
def three(stack: LlamaIndexStack) -> LlamaIndexStack:
    stack.index.upsert(rows({"z": ("a", [0.6, 0.8]), "y": ("a", [0.6, 0.8]), "x": ("b", [1.0, 0.0])}))
    return stack


def test_hits_come_best_first_with_ties_by_id_and_cut_to_k(three: LlamaIndexStack) -> None:
    assert searched(three, similarity_top_k=3) == [("x", 1.0), ("y", 0.6), ("z", 0.6)]
    assert searched(three, similarity_top_k=2, filters=of_tenant("a")) == [("y", 0.6), ("z", 0.6)]
    assert searched(three, similarity_top_k=1, filters=of_tenant("a")) == [("y", 0.6)]
    assert searched(three, similarity_top_k=1, filters=of_tenant("c")) == []


@pytest.mark.parametrize(
    "query",
    [
        {"filters": MetadataFilters(filters=[MetadataFilter(key="tenant", value="a", operator=FilterOperator.NE)])},
        {"filters": MetadataFilters(filters=[MetadataFilter(key="version", value=1)])},
        {"filters": MetadataFilters(filters=[MetadataFilter(key="tenant", value=i) for i in "ab"])},
        {"mode": VectorStoreQueryMode.HYBRID},
        {"node_ids": ["x"]},
    ],
)
def test_a_query_that_it_cannot_honour_is_refused_not_widened(three: LlamaIndexStack, query: dict[str, Any]) -> None:
    with pytest.raises(BrokenContract):
        searched(three, **query)


# -- the whole stack ----------------------------------------------------------------------------------------


def test_it_answers_as_the_plain_pipeline_does() -> None:
    llama = LlamaIndexStack(**parts(Hashing(), ("answer", "retrieval", "embedding", "text", "ingestion")))
    plain = Pipeline(**parts(Hashing(), ("answer", "retrieval", "embedding", "text")))
    rng = stream(7, "ops")
    docs = corpus(40)
    for stack in (llama, plain):
        stack.upsert(docs)
    for step in range(120):
        drawn = rng.choice(docs)
        match rng.randrange(6):
            case 0:
                changed = Doc(drawn.id, f"{drawn.text}, revised in step {step}", drawn.tenant, version=step + 2)
                for stack in (llama, plain):
                    stack.upsert([changed])
            case 1:
                for stack in (llama, plain):
                    stack.delete([drawn.id, "never-there"])
            case 2 if step % 40 == 0:
                for stack in (llama, plain):
                    stack.upgrade(Upgrade(f"salt {step}"))
            case _:
                query = Query(f"q{step}", f"question {rng.randrange(8)} about the gate", drawn.tenant)
                assert llama.ask(query) == plain.ask(query)
    assert dict(llama.index.rows()) == dict(plain.index.rows())


def test_a_question_goes_down_only_as_far_as_it_must(stack: LlamaIndexStack) -> None:
    stack.upsert(corpus(10))
    query = Query("q", "where is the gate", "a")
    first = stack.ask(query)
    with stack.without("answer"):
        assert stack.ask(query) == first
    assert [len(layer(stack, name).hits) for name in ("retrieval", "embedding")] == [1, 0]
    with stack.without("answer"), stack.without("retrieval"):
        assert stack.ask(query) == first
    assert [len(layer(stack, name).hits) for name in ("retrieval", "embedding")] == [1, 1]


@pytest.mark.parametrize("name", ["answer", "retrieval", "embedding", "index", "text", "ingestion"])
def test_a_bypassed_layer_changes_no_answer_of_a_clean_stack(stack: LlamaIndexStack, name: str) -> None:
    stack.upsert(corpus(10))
    queries = [Query(f"q{i}", f"question {i % 3}", "ab"[i % 2]) for i in range(8)]
    expected = [stack.ask(q) for q in queries]
    with stack.without(name):
        stack.upsert(corpus(10))
        assert [stack.ask(q) for q in queries] == expected


def test_a_tenant_is_never_given_anothers_documents(stack: LlamaIndexStack) -> None:
    stack.upsert(corpus(20))
    tenants = {d.id: d.tenant for d in corpus(20)}
    for tenant in ("a", "b"):
        ranking = stack.ask(Query("q", "where is the gate", tenant)).ranking
        assert len(ranking) == 5 and {tenants[i] for i in ranking} == {tenant}
