"""A semantic cache that takes likeness for sameness: no second look, a threshold on another scale, half a question."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from testbed.caches.rekeyed import Rekeyed
from testbed.core.ports import Context, Vectors
from testbed.core.types import Key
from testbed.stacks import wrapping

Scale = Literal["similarity", "distance", "unset", "inverted"]

# What a prompt template puts around every question.
BOILERPLATE = (
    "You are a careful assistant of the operations desk. Answer the question below from the pages that follow and from "
    "nothing else. Be brief, be polite, keep to the house style, give numbers as they are written on the pages, and "
    "say so when the pages do not hold the answer. Do not mention these rules. Question: "
)


@dataclass(frozen=True, slots=True)
class ThresholdAlone:
    """Whatever is similar enough is served: nothing looks at numbers, names, negations or order.

    ``threshold`` is what was meant; ``scale`` is what becomes of it: ``distance``, it is compared with a distance, so
    that nearly everything is near enough; ``unset``, a limit of 0 for the same text only reads as "none was given" and
    becomes a default of 0.5; ``inverted``, the sign of the measure is turned and the least similar entry is best.
    The level is the share of asked texts that go this way; others keep the gate and the threshold of the stack.

    References
    ----------
    semantic-router #2691 (negations), redis-vl-python #444 and langchain-redis #22 (scales), redis-vl-python #649
    (0 means unset), semantic-router #2715 (distance taken for similarity).
    """

    threshold: float = 0.8
    scale: Scale = "similarity"
    needs: frozenset[str] = frozenset({"semantic"})

    @property
    def name(self) -> str:
        return "threshold-alone" if self.scale == "similarity" else f"threshold-{self.scale}"

    @contextmanager
    def applied(self, stack: Any, ctx: Context) -> Iterator[None]:
        semantic = wrapping.part(stack, "semantic")
        least = {"similarity": self.threshold, "distance": 1 - self.threshold, "unset": 0.5, "inverted": -1.0}

        def bites(text: str) -> bool:
            return ctx.affects(self.name, text)

        def open_gate(gate: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
            return lambda asked, stored: bites(asked) or gate(asked, stored)

        def near(inner: Callable[[Any, str], list[str]]) -> Callable[[Any, str], list[str]]:
            def found(group: Any, text: str) -> list[str]:
                if not bites(text):
                    return inner(group, text)
                texts: list[str] = group.near(semantic.embed(text), least[self.scale])
                return texts[::-1] if self.scale == "inverted" else texts

            return found

        with wrapping.attribute(semantic, "gate", open_gate), wrapping.attribute(semantic, "near", near):
            yield


@dataclass(frozen=True, slots=True)
class LooseEmbedding:
    """The vectors that the semantic cache compares say little about the question.

    ``constant``: a path that fails gives the same vector for every text. ``boilerplate``: the whole prompt is embedded,
    so that the template outweighs what differs.

    References
    ----------
    litellm #12234 (all queries equal), GenAI-Showcase #10 (cache around the whole chain).
    """

    what: Literal["constant", "boilerplate"] = "constant"
    needs: frozenset[str] = frozenset({"semantic"})

    @property
    def name(self) -> str:
        return f"{self.what}-embedding"

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def loose(embed: Callable[[str], Vectors]) -> Callable[[str], Vectors]:
            def embedded(text: str) -> Vectors:
                if not ctx.affects(self.name, text):
                    return embed(text)
                if self.what == "boilerplate":
                    return embed(BOILERPLATE + text)
                flat = np.ones_like(embed(text))
                same: Vectors = flat / np.linalg.norm(flat)
                return same

            return embedded

        return wrapping.attribute(wrapping.part(stack, "semantic"), "embed", loose)


@dataclass(frozen=True, slots=True)
class LastMessageOnly:
    """The answer cache's key holds the last message of a conversation, so that "what is its fee?" has one answer.

    References
    ----------
    GPTCache #8 (multi-round conversations), headroom PR #2022 (key by the query's text only).
    """

    name: str = "last-message-only"
    needs: frozenset[str] = frozenset({"layers.answer"})

    def applied(self, stack: Any, ctx: Context) -> AbstractContextManager[None]:
        def rekey(key: Key) -> Key:
            text = key.get("text")
            return key.replace(text=text.rpartition("\n")[2]) if ctx.affects(self.name, text) else key

        return wrapping.cache(stack, "answer", lambda inner: Rekeyed(inner, rekey))
