"""The values of a run: what goes in, what comes out, what is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from testbed.core import digest


@dataclass(frozen=True, slots=True)
class Doc:
    """A document as the stack under test sees it: no facts, no relevance, no fault names.

    ``kind`` is what a content system knows of its pages (``record``, ``convention``, ``note``); ``refs`` are the
    ids of documents that this one points to (a record names the convention that gives its unit).
    """

    id: str
    text: str
    tenant: str = ""
    version: int = 1
    title: str = ""
    kind: str = ""
    refs: tuple[str, ...] = ()


class Revision(NamedTuple):
    """A later state of a document, and what about it changed its meaning.

    ``drift`` is ``value`` when the document's own statement changed, else the kind of semantic drift: ``unit``,
    ``currency``, ``enum``, ``composite``, ``policy-date``, ``definition`` (the record that refers to it is unchanged).
    ``removed`` takes the document away.
    """

    doc: Doc
    drift: str


@dataclass(frozen=True, slots=True)
class Query:
    """One question.

    ``session`` is the trace or session id that the caller sent along, ``prompt`` the name of the prompt that it chose
    ("" the service's own).
    """

    id: str
    text: str
    tenant: str = ""
    session: str = ""
    prompt: str = ""


class Source(NamedTuple):
    """A passage that was really read for an answer: which document, which revision, which text."""

    doc_id: str
    version: int
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the asker got.

    ``ranking`` holds document ids, best first, no duplicates. ``sources`` are the passages that the answer was read
    from. ``abstained`` is True when the reader found nothing to say (``text`` is then the fixed abstention).
    """

    text: str
    ranking: tuple[str, ...]
    sources: tuple[Source, ...] = ()
    abstained: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """A cache key as named parts, so that a fault can leave one out and an invariant can see which."""

    parts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, **parts: str) -> Key:
        return cls(tuple(sorted(parts.items())))

    def get(self, name: str, default: str = "") -> str:
        return next((v for n, v in self.parts if n == name), default)

    def without(self, *names: str) -> Key:
        return Key(tuple(p for p in self.parts if p[0] not in names))

    def replace(self, **parts: str) -> Key:
        """The key with these parts set (added where they were missing)."""
        return Key(tuple(sorted({**dict(self.parts), **parts}.items())))

    def digest(self) -> str:
        return digest.of_parts(self.parts)


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A deployment of another encoder under an unchanged model name (see ``models.encoders``)."""

    encoder: str


Verb: TypeAlias = Literal["load", "ask", "upsert", "delete", "upgrade"]


@dataclass(frozen=True, slots=True)
class Op:
    """One step of the workload, at a logical second. Op 0 is the load of the whole first corpus.

    ``item`` is a tuple of Docs for ``load``, a Query for ``ask``, a Doc for ``upsert`` and ``delete``, an Upgrade for
    ``upgrade``.
    """

    index: int
    at_s: float
    do: Verb
    item: Query | Doc | Upgrade | tuple[Doc, ...]


EventKind: TypeAlias = Literal["hit", "miss", "put", "delete", "evict", "reject", "search", "answer", "describe"]


@dataclass(frozen=True, slots=True)
class Event:
    """One line of ``trace.jsonl``: what a layer did during an op. No wall clock, no machine, no arm name.

    ``key`` holds the parts of the key as the *pipeline* built it, texts by their digest.
    ``value`` names the value: a text digest, or ``vector:<encoder>:<text digest>`` for a vector (never its floats,
    which differ in the last bit between machines).
    ``data`` is what the kind of event adds: ``tier`` of a hit, ``ranking`` and ``sources`` of an answer.
    """

    op: int
    at_s: float
    layer: str
    kind: EventKind
    key: Mapping[str, str] = field(default_factory=dict)
    value: str = ""
    data: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of fact in canonical form: ``("payment gateway", "request timeout", "30", "ms")``."""

    entity: str
    attribute: str
    value: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Gold:
    """What this asker should have been served at this op. Made by the harness, never seen by the stack.

    Parameters
    ----------
    op : index of the ask
    query, tenant : ids
    subject : two asks of one tenant with the same subject ask the same thing, in whatever words; "" when unknown
    relevant : relevance grade per document id (grade >= 1 is relevant)
    accept : answer strings that are right now (aliases); () when the data set does not say
    claim : the true claim now, for data with a ledger of facts; None elsewhere
    """

    op: int
    query: str
    tenant: str
    subject: str
    relevant: Mapping[str, int]
    accept: tuple[str, ...] = ()
    claim: Claim | None = None


@dataclass(frozen=True, slots=True)
class Witness:
    """The fewest events that show a violation, and the same in plain words."""

    ops: tuple[int, ...]
    layer: str
    story: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of an invariant over one arm: holds, does not hold, or None: could not tell (``why`` says why)."""

    invariant: str
    holds: bool | None
    violations: int = 0
    checked: int = 0
    witness: Witness | None = None
    why: str = ""
