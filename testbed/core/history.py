"""A trace read back: what each cache hit was served from, what each search went over, what each asker got.

Replays the puts and deletes of a trace into model dicts, so that every hit is paired with the write that its value
came from. Metrics, invariants and diagnosis share one reading, made once for each arm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from testbed.core.evidence import Evidence, OpRow
from testbed.core.timeline import Timeline
from testbed.core.types import Event

Parts = frozenset[tuple[str, str]]
_MADE_WITH = ("answer", "retrieval")  # layers whose values depend on which encoder is in force


class Lookup(NamedTuple):
    """One hit or miss of a cache, with the write that a hit was served from.

    ``write`` is None for a miss, and for a value that nobody put. ``own`` is True when the value is the last one put
    under this very key. ``live`` is False when the write had been replaced or deleted before the read. ``differs``
    names the key parts in which write and read differ; () with ``own`` False means an old value of the same key.
    Where the ops say what a key should have held (``History.unsaid``), that counts as if it stood there.
    """

    event: Event
    write: Event | None = None
    own: bool = False
    live: bool = True
    differs: tuple[str, ...] = ()

    @property
    def hit(self) -> bool:
        return self.event.kind == "hit"


class Search(NamedTuple):
    """A search of the index, with the write of each returned document's vector (None: no write was seen).

    ``strays`` are writes of vectors that another encoder made than the question's, among those that the search went
    over: of one such document, and of each document that should have been found. They lie in a space of their own, so
    that such a document hardly ever comes back, which is why it is not enough to look at what did. For the same reason
    ``missed`` has the documents that should have been found and were not, with the writes of their vectors: None where
    the index holds none, though it holds others.
    """

    event: Event
    rows: tuple[tuple[str, Event | None], ...]
    strays: tuple[Event, ...] = ()
    missed: tuple[tuple[str, Event | None], ...] = ()

    @property
    def made_by(self) -> str:
        """The encoder of the question's vector; "" unknown."""
        return encoder_of(self.event.key.get("vector", ""))


class Superseded(NamedTuple):
    """A served source that was no longer true: ``current`` None means the document had been deleted.

    ``under`` is the id under which the text was served, where that is not the document's own.
    """

    doc_id: str
    version: int
    current: int | None
    since: int
    under: str = ""


class Ask:
    """All that one ask did and got. ``stale`` and ``foreign`` are None where the trace does not let one tell."""

    def __init__(self, op: OpRow, evidence: Evidence, timeline: Timeline, owners: Callable[[str], frozenset[str]]):
        self.op = op
        self.answer: Event | None = None
        self.lookups: list[Lookup] = []
        self.searches: list[Search] = []
        self._evidence = evidence
        self._timeline = timeline
        self._owners = owners

    @cached_property
    def ranking(self) -> tuple[str, ...]:
        return () if self.answer is None else tuple(_list(self.answer.data.get("ranking")))

    @cached_property
    def sources(self) -> tuple[tuple[str, int, str], ...]:
        """(document, version, text digest) of each passage that the answer was read from."""
        if self.answer is None:
            return ()
        return tuple((s[0], int(s[1]), s[2]) for s in _list(self.answer.data.get("sources")))

    @property
    def abstained(self) -> bool:
        return self.answer is not None and bool(self.answer.data.get("abstained"))

    def hit(self, layer: str) -> Lookup | None:
        return next((found for found in self.lookups if found.hit and found.event.layer == layer), None)

    @cached_property
    def via(self) -> str:
        """The layer that served: the first that hit, inner tiers aside; "none" when nothing did."""
        hits = (found.event.layer for found in self.lookups if found.hit)
        return next((layer for layer in hits if "." not in layer), "none")

    @cached_property
    def superseded(self) -> tuple[Superseded, ...]:
        out = []
        for shown, version, text in self.sources:
            doc_id = self._document(shown, text)
            if self._timeline.since(doc_id, self.op.index) < 0:
                continue
            row = self._timeline.current(doc_id, self.op.index)
            if row is None or version < row.version:
                since = self._timeline.since(doc_id, self.op.index)
                under = shown if shown != doc_id else ""
                out.append(Superseded(doc_id, version, None if row is None else row.version, since, under))
        return tuple(out)

    def _document(self, shown: str, text: str) -> str:
        """The document that a source belongs to: by its id, or by its text where nobody recorded that id."""
        if self._timeline.tenant(shown) is not None:
            return shown
        return next((row.doc_id for row in self._timeline.revisions(text)), shown)

    @cached_property
    def stale(self) -> bool | None:
        if self.superseded:
            return True
        documents = [self._document(shown, text) for shown, _, text in self.sources]
        known = [self._timeline.since(doc_id, self.op.index) >= 0 for doc_id in documents]
        return False if known and all(known) else None

    @cached_property
    def foreign_docs(self) -> tuple[str, ...]:
        """Documents of another tenant among the ranking and the sources, in that order."""
        ids = dict.fromkeys((*self.ranking, *(doc_id for doc_id, _, _ in self.sources)))
        return tuple(i for i in ids if self._timeline.tenant(i) not in (None, "", self.op.tenant))

    @cached_property
    def foreign_tenants(self) -> tuple[str, ...]:
        """Whose content reached this asker: by document, and by the canary in what was shown."""
        shown = [self.answer.value] if self.answer is not None else []
        shown += [text for _, _, text in self.sources]
        found = {tenant for text in shown for tenant in self._owners(text)}
        found |= {self._timeline.tenant(i) or "" for i in self.foreign_docs}
        return tuple(sorted(found - {self.op.tenant, ""}))

    @cached_property
    def foreign(self) -> bool | None:
        if self.answer is None or not self.op.tenant:
            return None
        if self.foreign_tenants:
            return True
        seen = (*self.ranking, *(doc_id for doc_id, _, _ in self.sources))
        return None if any(self._timeline.tenant(i) is None for i in seen) else False


class History:
    """The reading of one arm.

    ``lookups`` and ``searches`` of all ops, in the order they happened; ``asks`` by op.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.timeline = Timeline(evidence)
        self.ops: Mapping[int, OpRow] = {op.index: op for op in evidence.ops}
        self._owners: dict[str, frozenset[str]] = {}
        self.asks: dict[int, Ask] = {
            op.index: Ask(op, evidence, self.timeline, self.owners) for op in evidence.ops if op.do == "ask"
        }
        self.lookups: list[Lookup] = []
        self.searches: list[Search] = []
        self._made: dict[tuple[int, str], str] = {}
        self._encoders = _in_force(evidence.ops)
        self._read()

    @property
    def searches_index(self) -> bool:
        """Whether searches went over the index whose writes were recorded: not where the index was bypassed."""
        return "index" not in self.evidence.arm.partition("-without:")[2].split("+")

    @cached_property
    def subjects(self) -> Mapping[tuple[str, str], str]:
        """What a question of a tenant asks about, by (tenant, text digest); "" where two asks disagree."""
        out: dict[tuple[str, str], str] = {}
        for index, gold in self.evidence.gold.items():
            op = self.ops.get(index)
            if op is not None and gold.subject and out.setdefault((op.tenant, op.text), gold.subject) != gold.subject:
                out[op.tenant, op.text] = ""
        return out

    def same_subject(self, tenant: str, text: str, other: str) -> bool | None:
        """Whether two texts of a tenant ask the same thing; None when that is not known."""
        first, second = self.subjects.get((tenant, text)), self.subjects.get((tenant, other))
        return first == second if first and second else None

    def lawful(self, lookup: Lookup) -> bool | None:
        """Whether a hit is what a dict with losses may return; None when that cannot be told.

        Besides the last value under the same key, three relaxed forms are lawful: a near match of the answer cache
        (only ``text`` differs, and both texts ask the same thing), and a value of an older corpus ``epoch`` when none
        of the documents that it was made from has changed since (the epoch is a stand-in for them). Keys are compared
        with the tenant that really asked, whoever the service took it for, and with what they leave ``unsaid``.
        """
        if lookup.own:
            return True
        if lookup.write is None or not lookup.live:
            return False
        differs = set(lookup.differs)
        if self.asker(lookup.event) == self.asker(lookup.write):
            differs.discard("tenant")
        if not differs <= {"text", "epoch"}:
            return False
        allowed: list[bool | None] = []
        if "text" in differs:
            allowed.append(self._asks_the_same(lookup))
        if "epoch" in differs:
            allowed.append(self.unchanged(lookup))
        if False in allowed or not allowed:
            return False
        return None if None in allowed else True

    def unchanged(self, lookup: Lookup) -> bool | None:
        """Whether the documents that a cached value was made from are as they were when it was written."""
        origin = None if lookup.write is None else self.asks.get(lookup.write.op)
        if origin is None or origin.answer is None:
            return None
        ids = origin.ranking if lookup.event.layer == "retrieval" else [doc_id for doc_id, _, _ in origin.sources]
        return not any(self.timeline.since(doc_id, lookup.event.op) > origin.op.index for doc_id in ids)

    def _likelihood(self, reading: Lookup) -> tuple[int, int, bool, int]:
        """Where a value is under several keys: the lawful reading, then the nearest key, then live, then latest."""
        lawful, write = self.lawful(reading), reading.write
        rank = 2 if lawful is False else 1 if lawful is None else 0
        return rank, len(reading.differs), not reading.live, -write.op if write else 0

    def _asks_the_same(self, lookup: Lookup) -> bool | None:
        if lookup.write is None or lookup.event.layer != "answer":
            return False
        tenant = self.asker(lookup.event)
        return self.same_subject(tenant, lookup.event.key.get("text", ""), lookup.write.key.get("text", ""))

    def made(self, op: int, text: str) -> str:
        """The name of the vector that was made, or taken from the cache, for a document's text in an op; "" none."""
        return self._made.get((op, text), "")

    def owners(self, text: str) -> frozenset[str]:
        """Tenants whose canary occurs in a text, given by its digest."""
        if text not in self._owners:
            content = self.evidence.texts.get(text, "")
            canaries = self.evidence.canaries.items()
            self._owners[text] = frozenset(tenant for tenant, canary in canaries if canary and canary in content)
        return self._owners[text]

    def asker(self, event: Event) -> str:
        """The tenant on whose behalf an event happened: who really asked, else what the key says."""
        op = self.ops.get(event.op)
        return op.tenant if op is not None and op.do == "ask" else event.key.get("tenant", "")

    def unsaid(self, event: Event) -> Parts:
        """What the ops say that an answer or a ranking was made with, where the stack's own key does not say it.

        A key that leaves out the prompt or the encoder is equal for two values that are not the same. One that has such
        a part is taken at its word: the stack may know that a deployment changed nothing.
        """
        op, made_with = self.ops.get(event.op), {}
        if event.layer in _MADE_WITH:
            made_with["model"] = self._encoders.get(event.op, "")
        if event.layer == "answer" and op is not None and op.do == "ask":
            made_with["prompt"] = op.prompt
        return frozenset((part, value) for part, value in made_with.items() if value and part not in event.key)

    def _read(self) -> None:
        caches: dict[str, _Model] = {}
        index = _Vectors()
        for event in self.evidence.events:
            ask = self.asks.get(event.op)
            if event.layer == "index":
                gold = self.evidence.gold.get(event.op)
                search = index.take(event, gold.relevant if gold else {})
                if search is not None:
                    self.searches.append(search)
                    if ask is not None:
                        ask.searches.append(search)
            elif event.kind == "answer":
                if ask is not None:
                    ask.answer = event
            elif event.kind in ("hit", "miss", "put", "delete"):
                if event.layer == "embedding" and event.value and event.key.get("role") == "document":
                    self._made[event.op, event.key.get("text", "")] = event.value
                readings = caches.setdefault(event.layer, _Model()).take(event, self.asker(event), self.unsaid(event))
                if readings:
                    lookup = readings[0] if len(readings) == 1 else min(readings, key=self._likelihood)
                    self.lookups.append(lookup)
                    if ask is not None:
                        ask.lookups.append(lookup)


class _Model:
    """What a perfect cache of one layer would hold, and every put that there ever was, by value.

    It knows who really asks: where a key names a tenant, that is the tenant it goes by. It also knows what a key should
    have held and did not (``unsaid``).
    """

    def __init__(self) -> None:
        self._last: dict[Parts, Event] = {}
        self._puts: dict[str, dict[Parts, tuple[Event, Parts]]] = {}
        self._unsaid: dict[Parts, set[Parts]] = {}

    def take(self, event: Event, asker: str, unsaid: Parts) -> list[Lookup]:
        """The readings of a hit or miss, none for another event: more than one when a value is under several keys."""
        said = parts_of({**event.key, "tenant": asker} if "tenant" in event.key else event.key)
        key = said | unsaid
        if event.kind == "put":
            self._last[key] = event
            self._puts.setdefault(event.value, {})[key] = event, parts_of(event.key) | unsaid
            self._unsaid.setdefault(said, set()).add(unsaid)
        elif event.kind == "delete":
            for other in self._unsaid.pop(said, ()):
                self._last.pop(said | other, None)
        elif event.kind == "miss":
            return [Lookup(event)]
        elif event.kind == "hit":
            own = self._last.get(key)
            if own is not None and own.value == event.value:
                return [Lookup(event, own, own=True)]
            return [
                Lookup(
                    event,
                    put,
                    live=self._last.get(other) is put,
                    differs=differing(parts_of(event.key) | unsaid, parts),
                )
                for other, (put, parts) in self._puts.get(event.value, {}).items()
            ] or [Lookup(event)]
        return []


class _Vectors:
    """The rows that an index holds: by document, and by tenant and encoder."""

    def __init__(self) -> None:
        self._rows: dict[str, Event] = {}
        self._by_tenant: dict[str, dict[str, dict[str, Event]]] = {}
        self._is_written = False

    def take(self, event: Event, relevant: Mapping[str, int]) -> Search | None:
        doc_id = event.key.get("doc", "")
        if event.kind in ("put", "delete"):
            before = self._rows.pop(doc_id, None)
            if before is not None:
                del self._by_tenant[before.key.get("tenant", "")][encoder_of(before.value)][doc_id]
        if event.kind == "put":
            self._is_written = True
            self._rows[doc_id] = event
            made_by = self._by_tenant.setdefault(event.key.get("tenant", ""), {})
            made_by.setdefault(encoder_of(event.value), {})[doc_id] = event
        elif event.kind == "search":
            ids = [row[0] for row in _list(event.data.get("ranking"))]
            rows = tuple((i, self._rows.get(i)) for i in ids)
            return Search(event, rows, self._strays(event, relevant), self._missed(ids, relevant))
        return None

    def _missed(self, found: Sequence[str], relevant: Mapping[str, int]) -> tuple[tuple[str, Event | None], ...]:
        wanted = [doc_id for doc_id, grade in relevant.items() if grade and doc_id not in found]
        return tuple((doc_id, self._rows.get(doc_id)) for doc_id in wanted) if self._is_written else ()

    def _strays(self, search: Event, relevant: Mapping[str, int]) -> tuple[Event, ...]:
        asked_by, tenant = encoder_of(search.key.get("vector", "")), search.key.get("tenant", "")
        if not asked_by:
            return ()
        scope = [tenant, ""] if tenant else sorted(self._by_tenant)
        others = [
            rows
            for owner in scope
            for made_by, rows in self._by_tenant.get(owner, {}).items()
            if rows and made_by not in ("", asked_by)
        ]
        missed = [rows[doc_id] for doc_id, grade in relevant.items() if grade for rows in others if doc_id in rows]
        return (*missed,) if missed else tuple(next(iter(rows.values())) for rows in others[:1])


def _in_force(ops: Iterable[OpRow]) -> Mapping[int, str]:
    """The encoder that was deployed last, by op; "" before the first deployment.

    Nothing where there are several deployments: a later one may bring back the first encoder, which has no name here.
    """
    rows = list(ops)
    if sum(op.do == "upgrade" for op in rows) > 1:
        return {}
    out, encoder = {}, ""
    for op in rows:
        encoder = op.id if op.do == "upgrade" else encoder
        out[op.index] = encoder
    return out


def encoder_of(vector: str) -> str:
    """The fingerprint in a vector's name (``vector:<encoder>:<text>``); "" when its origin is unknown."""
    made_by = vector.split(":")[1] if vector.startswith("vector:") else ""
    return "" if made_by == "unknown" else made_by


def embedded_text(vector: str) -> str:
    """The digest of the embedded text in a vector's name; "" when its origin is unknown."""
    return vector.split(":")[2] if vector.startswith("vector:") else ""


def parts_of(key: Mapping[str, str]) -> Parts:
    return frozenset(key.items())


def differing(one: Parts, other: Parts) -> tuple[str, ...]:
    """Names of the parts in which two keys differ, sorted; a part that only one of them has differs."""
    return tuple(sorted({name for name, _ in one ^ other}))


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
