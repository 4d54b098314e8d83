"""The protocols that parts implement. Inherit from none of them; extend by wrapping."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from testbed.core.evidence import Evidence
from testbed.core.types import Answer, Doc, Gold, Key, Op, Query, Revision, Upgrade, Verdict

if TYPE_CHECKING:  # numpy is only a type here: core runs on the standard library
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]
else:
    Vectors = Any

Role = Literal["query", "document"]


class Cache(Protocol):
    """A dict with losses.

    1. ``get(k)`` returns the value of the last ``put`` under ``k``, or None. None may come at any time (eviction,
       expiry, a miss); a value that was put under another key, or before the last ``put`` or ``delete``, never.
    2. ``put`` stores a value: None, str, int, float, bool, float32 arrays, and lists and str-keyed dicts of these.
       What ``get`` gives back is equal to what was put, and changing it does not change the cache.
    3. ``delete`` of a key that is not there does nothing.
    4. ``fresh()`` is an empty cache of the same make and settings that shares no entry with this one.
    5. A semantic cache may return a value put under a key that differs in the part ``text`` only, when the two texts
       ask the same thing.
    """

    def get(self, key: Key) -> Any | None: ...
    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None: ...
    def delete(self, key: Key) -> None: ...
    def fresh(self) -> Cache: ...


class Encoder(Protocol):
    """Texts in, unit vectors out.

    ``name`` is what people call the model and what a careless cache believes; ``fingerprint`` is what it *is*
    (weights, tokenizer and settings). Two encoders may share a name and never share a fingerprint.
    ``encode`` gives float32 of shape (n_texts, dim), rows of norm 1, each row a function of its own text and the role
    alone: the same bits whatever else is in the batch.
    """

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def tokenizer(self) -> str: ...
    @property
    def dim(self) -> int: ...
    def encode(self, texts: Sequence[str], role: Role) -> Vectors: ...


class Row(NamedTuple):
    """One vector of an index: (dim,) float32, with what it was made of."""

    doc_id: str
    version: int
    tenant: str
    vector: Vectors
    made_by: str  # fingerprint of the encoder
    text_digest: str  # digest of the text that was embedded


class RowInfo(NamedTuple):
    version: int
    tenant: str
    made_by: str
    text_digest: str


class Hit(NamedTuple):
    doc_id: str
    score: float


class Index(Protocol):
    """Vectors by document id.

    1. ``upsert`` replaces rows of the same id; ``delete`` of an unknown id does nothing.
    2. ``search`` gives at most ``k`` hits of one tenant (of all, when tenant is None) by inner product, rounded to
       1e-6, score descending then id ascending: exact ties never depend on insertion order. ``made_by`` is the
       fingerprint of the encoder of the query.
    3. ``rows`` tells what is held, by id, sorted.
    4. ``fresh()`` is an empty index of the same make.
    """

    def upsert(self, rows: Sequence[Row]) -> None: ...
    def delete(self, ids: Sequence[str]) -> None: ...
    def search(self, vector: Vectors, *, tenant: str | None, k: int, made_by: str) -> list[Hit]: ...
    def rows(self) -> Mapping[str, RowInfo]: ...
    def fresh(self) -> Index: ...


class Passage(NamedTuple):
    doc_id: str
    version: int
    text: str
    refs: tuple[str, ...] = ()


class Reader(Protocol):
    """Answers from the passages it is given and from nothing else; says so when they hold no answer."""

    @property
    def name(self) -> str: ...
    def read(self, question: str, passages: Sequence[Passage], linked: Mapping[str, Passage]) -> Answer: ...


class Stack(Protocol):
    """The pipeline under test; the user's own plugs in here.

    ``layers`` are its caches by name, outermost first; {} is a black box. ``without(layer)`` serves as if that layer
    were not there, for as long as the with-block lasts; Unsupported when it cannot.
    """

    @property
    def layers(self) -> MutableMapping[str, Cache]: ...
    def upsert(self, docs: Iterable[Doc]) -> None: ...
    def delete(self, ids: Iterable[str]) -> None: ...
    def upgrade(self, upgrade: Upgrade) -> None: ...
    def ask(self, query: Query) -> Answer: ...
    def describe(self) -> list[dict[str, str]]: ...
    def without(self, layer: str) -> AbstractContextManager[None]: ...
    def close(self) -> None: ...


class Context(Protocol):
    """What a fault or a fix may know: its level, its own random streams, the time, who is asking. Nothing else."""

    @property
    def level(self) -> float: ...
    def affects(self, name: str, token: str, *, share: float = 1.0) -> bool:
        """Whether the change ``name`` touches this key or document: true for ``level * share`` of all tokens."""

    def now(self) -> float: ...
    def schedule(self, at_s: float, call: Callable[[], None]) -> None: ...
    def asker(self) -> Query | None:
        """Who is asking, as the service's front door authenticated it; None outside an ask."""

    def reject(self, layer: str, key: Key, why: str) -> None:
        """Record that a fix refused to serve an entry."""


class Change(Protocol):
    """A fault or a fix: a reversible edit of a stack, active inside the with-block.

    ``needs`` names attributes or layers of the stack ("layers.answer", "index", "source", ...); one missing makes the
    arm unsupported, not failed. A fault at level 0 changes nothing, byte for byte.
    """

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> frozenset[str]: ...
    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]: ...


class Corpus(Protocol):
    """A data set as the harness sees it: documents, questions, revisions, and the truth at any moment.

    ``docs`` are the first revisions, sorted by id; ``revisions`` later ones in the order in which they happen.
    ``topics`` says for a query id which kind of drift can change its answer ("" or missing: none).
    ``glossary`` is configuration that the stack gets too: per tenant, what that tenant's words stand for.
    ``canaries`` hold one token per tenant that occurs in all of its documents and in no other's.
    ``lexicon`` is what a reader of claims needs (a JSON value), None when the set has no ledger of facts.
    ``gold`` is the truth for one ask when the documents stand at ``versions``.
    """

    @property
    def name(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def docs(self) -> tuple[Doc, ...]: ...
    @property
    def revisions(self) -> tuple[Revision, ...]: ...
    @property
    def queries(self) -> tuple[Query, ...]: ...
    @property
    def topics(self) -> Mapping[str, str]: ...
    @property
    def subjects(self) -> Mapping[str, str]: ...
    @property
    def glossary(self) -> Mapping[str, Mapping[str, str]]: ...
    @property
    def canaries(self) -> Mapping[str, str]: ...
    @property
    def lexicon(self) -> Mapping[str, Any] | None: ...
    def gold(self, op: int, query: Query, versions: Mapping[str, int]) -> Gold: ...


class Workload(Protocol):
    """Turns a data set and a seed into the ops of a run. The same arguments give the same ops."""

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]: ...


class Invariant(Protocol):
    """A rule that no correct stack breaks; reads the evidence of one arm, never a live object."""

    @property
    def name(self) -> str: ...
    def check(self, evidence: Evidence) -> Verdict: ...
