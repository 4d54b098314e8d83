"""How a service may be built to begin with: bounded, fresh by events, fresh by a judge, with more than one prompt.

A variant names these as ``given``; they are in force in all of its arms and at every level, before any fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from testbed.caches.eviction import Bounded, Lfu, Lru, OnEvict, Policy, S3Fifo, Sieve, WTinyLfu
from testbed.caches.rekeyed import Rekeyed
from testbed.core import digest
from testbed.core.ports import Cache, Context, Passage, Reader
from testbed.core.types import Answer, Key
from testbed.fixes.guard import Guarded
from testbed.fixes.invalidate import EventInvalidation, sources_of
from testbed.stacks import wrapping

POLICIES: Mapping[str, Callable[..., Policy]] = {
    "lru": Lru,
    "lfu": Lfu,
    "sieve": Sieve,
    "s3-fifo": S3Fifo,
    "w-tinylfu": WTinyLfu,
}


@dataclass(frozen=True, slots=True)
class BoundedAnswers:
    """The answer cache holds at most ``capacity`` entries, kept by a policy, each under its own text.

    The stack then has a part ``bounded``, so that another policy can take over.
    """

    capacity: int
    policy: str = "lru"
    name: str = "bounded-answers"
    needs: frozenset[str] = frozenset({"layers.answer"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def make(out: OnEvict) -> Policy:
            return POLICIES[self.policy](self.capacity, on_evict=out)

        def wrap(inner: Cache) -> Cache:
            return Bounded(inner, make)

        with wrapping.cache(stack, "answer", wrap), _having(stack, "bounded", stack.layers["answer"]):
            yield


@contextmanager
def _having(stack: Any, name: str, part: Any) -> Iterator[None]:
    """The stack has one more part for as long as the block lasts."""
    before = vars(stack).get(name)
    setattr(stack, name, part)
    try:
        yield
    finally:
        if before is None:
            delattr(stack, name)
        else:
            setattr(stack, name, before)


@contextmanager
def _without_epoch(stack: Any) -> Iterator[None]:
    with wrapping.cache(stack, "answer", lambda inner: Rekeyed(inner, lambda key: key.without("epoch"))):
        yield


@dataclass(frozen=True, slots=True)
class FreshByEvents:
    """Answers are kept under keys that do not move with the corpus; a change deletes those that were read from it."""

    name: str = "fresh-by-events"
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with _without_epoch(stack), EventInvalidation().applied(stack, ctx):
            yield


class Judgments:
    """Verdicts on cached answers, kept. ``name_of`` builds the key of a verdict from all that the judge is shown."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def name_of(self, key: Key, read_from: Sequence[Any], current: Sequence[Any]) -> str:
        return digest.of_json([list(map(list, key.parts)), list(read_from), list(current)])

    def of(self, key: Key, read_from: Sequence[Any], current: Sequence[Any]) -> str:
        """Why the answer may not be served, "" when it may. The judge is exact: it compares revision by revision."""
        name = self.name_of(key, read_from, current)
        if name not in self._known:
            changed = [doc_id for (doc_id, old), (_, now) in zip(read_from, current, strict=True) if old != now]
            self._known[name] = f"judged stale: {changed[0]} has changed" if changed else ""
        return self._known[name]


@dataclass(frozen=True, slots=True)
class FreshByJudge:
    """Keys do not move with the corpus; a judge looks at each hit, and its verdicts are cached.

    The judge knows the record and is never wrong, so that what goes wrong is its cache. The stack then has a part
    ``judgments``.
    """

    name: str = "fresh-by-judge"
    needs: frozenset[str] = frozenset({"layers.answer", "source"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        judgments = Judgments()

        def read_from(key: Key, value: Any) -> list[list[Any]]:
            return [[doc_id, version] for doc_id, version, _ in sources_of(value)]

        def fits(mark: Any, key: Key) -> str:
            found = [(doc_id, stack.source.find(doc_id)) for doc_id, _ in mark]
            current = [[doc_id, None if doc is None else doc.version] for doc_id, doc in found]
            return judgments.of(key, mark, current)

        guard = wrapping.cache(stack, "answer", lambda inner: Guarded(inner, "answer", ctx, read_from, fits))
        with _having(stack, "judgments", judgments), guard, _without_epoch(stack):
            yield


BRIEF = "brief"


@dataclass(frozen=True, slots=True)
class TwoPrompts:
    """Callers may choose the prompt ``brief``: it asks for the bare entry, without what explains it.

    The reader's name, which every answer key holds as ``prompt``, says which prompt was used.
    """

    name: str = "two-prompts"
    needs: frozenset[str] = frozenset({"reader"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        with wrapping.attribute(stack, "reader", lambda inner: _ByCaller(inner, ctx)):
            yield


class _ByCaller:
    def __init__(self, inner: Reader, ctx: Context) -> None:
        self._inner = inner
        self._ctx = ctx

    def _is_brief(self) -> bool:
        asker = self._ctx.asker()
        return asker is not None and asker.prompt == BRIEF

    @property
    def name(self) -> str:
        return f"{self._inner.name}, {BRIEF}" if self._is_brief() else self._inner.name

    def read(self, question: str, passages: Sequence[Passage], linked: Mapping[str, Passage]) -> Answer:
        bare = [p._replace(refs=()) for p in passages] if self._is_brief() else passages
        return self._inner.read(question, bare, linked)
