"""Fixes for a semantic cache that serves the answer to another question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.caches.gate import same_numbers_negations_entities
from testbed.core import digest
from testbed.core.ports import Context
from testbed.core.types import Key
from testbed.fixes.guard import Guarded
from testbed.fixes.keys import rekeyed
from testbed.stacks import wrapping

Gate = Callable[[str, str], bool]


@dataclass(frozen=True, slots=True)
class SecondGate:
    """What is similar must also agree in numbers, names, negations, tense and order (see ``caches.gate``).

    Costs the hits of paraphrases that it does not recognise, and some microseconds per candidate.
    """

    name: str = "second-gate"
    needs: frozenset[str] = frozenset({"semantic"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def both(gate: Gate) -> Gate:
            return lambda asked, stored: gate(asked, stored) and same_numbers_negations_entities(asked, stored)

        return wrapping.attribute(wrapping.part(stack, "semantic"), "gate", both)


@dataclass(frozen=True, slots=True)
class GateOnRead:
    """Answers remember their question; a hit for another question passes the gate or is refused, whatever found it.

    Works with any second level, and sees only what that offers first: costs the hits that its next offer would have
    been, and an entry's slot that two questions keep taking from each other.
    """

    name: str = "gate-on-read"
    needs: frozenset[str] = frozenset({"layers.answer"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def asked(key: Key, value: Any) -> str:
            return key.get("text")

        def fits(mark: Any, key: Key) -> str:
            text = key.get("text")
            alike = text == mark or same_numbers_negations_entities(text, mark)
            return "" if alike else "made for another question"

        with wrapping.cache(stack, "answer", lambda inner: Guarded(inner, "answer", ctx, asked, fits)):
            yield


@dataclass(frozen=True, slots=True)
class ExactOnly:
    """The semantic level answers for the same text only.

    Costs every hit of a paraphrase: what is left is the first level.
    """

    name: str = "exact-only"
    needs: frozenset[str] = frozenset({"semantic"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def same(gate: Gate) -> Gate:
            return lambda asked, stored: asked == stored and gate(asked, stored)

        return wrapping.attribute(wrapping.part(stack, "semantic"), "gate", same)


# Look-alikes that a threshold must keep apart, each in the words of another trade.
_LOOK_ALIKES = (
    ("How long is the warranty of model 20?", "How long is the warranty of model 21?"),
    ("Which rooms have a balcony?", "Which rooms have no balcony?"),
    ("Does the tenant pay the landlord?", "Does the landlord pay the tenant?"),
    ("What is the limit in miles?", "What is the limit in kilometres?"),
    ("Who is on duty on Tuesday?", "Who is on duty on Thursday?"),
    ("What is the lowest fare to Leeds?", "What is the highest fare to Leeds?"),
)


@dataclass(frozen=True, slots=True)
class ValidatedThreshold:
    """The threshold is measured, not configured: above the similarity of every pair that must be kept apart.

    An embedding under which these pairs are equal leaves nothing above, and the level serves the same text only. Costs
    a dozen encodings at start, and the hits of every paraphrase that is less alike than the closest look-alikes: since
    look-alikes are closer than most paraphrases, nearly all of them.
    """

    name: str = "validated-threshold"
    needs: frozenset[str] = frozenset({"semantic"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        semantic = wrapping.part(stack, "semantic")
        known: list[float] = []

        def threshold() -> float:
            if not known:
                alike = [float(np.dot(semantic.embed(a), semantic.embed(b))) for a, b in _LOOK_ALIKES]
                known.append(max(semantic.threshold, round(max(alike) + 0.001, 3)))
            return known[0]

        def validated(inner: Callable[[Any, str], list[str]]) -> Callable[[Any, str], list[str]]:
            def near(group: Any, text: str) -> list[str]:
                found: list[str] = group.near(semantic.embed(text), threshold())
                return found

            return near

        return wrapping.attribute(semantic, "near", validated)


@dataclass(frozen=True, slots=True)
class HistoryScopedKey:
    """The answer key gets a digest of the conversation before the last message.

    Costs the hits between conversations that said the same in other words; a question that stands alone costs nothing.
    """

    name: str = "history-scoped-key"
    layers: tuple[str, ...] = ("answer",)
    needs: frozenset[str] = frozenset({"layers.answer"})

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        def rekey(key: Key) -> Key:
            asker = ctx.asker()
            before = "" if asker is None else asker.text.rpartition("\n")[0]
            return key.replace(history=digest.of_text(before)) if before else key

        with rekeyed(stack, self.layers, rekey):
            yield
