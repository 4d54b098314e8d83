"""A whole pipeline small enough for unit tests: real parts in memory, and a double for the encoder only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.caches.eviction import Bounded, Lru
from testbed.caches.memory import MemoryCache
from testbed.caches.semantic import SemanticCache
from testbed.caches.tiered import TieredCache
from testbed.core import digest
from testbed.core.clock import Clock, LogicalClock
from testbed.core.names import ValueNames
from testbed.core.types import Doc, Event, Query
from testbed.fixes.given import Judgments
from testbed.models.reader import ExtractiveReader
from testbed.probes.trace import Recorder
from testbed.run.arms import ask, changed, probed
from testbed.run.context import RunContext
from testbed.stacks.pipeline import Pipeline
from testbed.stores.exact import ExactIndex


class WordEncoder:
    """A bag of words hashed into 64 dimensions: near texts are near, and nothing has to be installed."""

    dim = 64
    tokenizer = "split"

    def __init__(self, fingerprint: str = "words-1", name: str = "words") -> None:
        self.fingerprint = fingerprint
        self.name = name

    def encode(self, texts: Sequence[str], role: str) -> Any:
        out = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().replace("?", "").replace(".", "").split():
                out[row, hashlib.blake2b((self.fingerprint + word).encode()).digest()[0] % self.dim] += 1.0
            out[row] /= np.linalg.norm(out[row]) or 1.0
        return out


DOCS = tuple(
    Doc(f"{tenant}-{thing}", f"The request timeout of the {thing} is {value} ms.", tenant, kind="record", refs=refs)
    for tenant, offset in (("acme", 10), ("birch", 50))
    for thing, value, refs in (
        ("gateway", offset, (f"{tenant}-units",)),
        ("mailer", offset + 1, ()),
        ("printer", offset + 2, ()),
    )
) + tuple(
    Doc(f"{tenant}-units", "Every request timeout is given in milliseconds.", tenant, kind="convention")
    for tenant in ("acme", "birch")
)
QUERIES = tuple(
    Query(f"{tenant}-{thing}-{n}", f"What is the request timeout of the {thing}?", tenant, f"t-{n % 2}")
    for n in range(3)
    for thing in ("gateway", "mailer")
    for tenant in ("acme", "birch")
)


class Trace:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    def text(self, name: str, text: str) -> None:
        assert name == digest.of_text(text)

    def timing(self, op: int, layer: str, kind: str, ns: int) -> None:
        assert ns >= 0


def small_stack(clock: Clock | None = None) -> Pipeline:
    """A new, empty pipeline with every seam that a change may need."""
    encoder = WordEncoder()
    semantic = SemanticCache(lambda text: encoder.encode([text], "query")[0], 0.99, lambda a, b: a == b, 100, clock)
    answer = TieredCache({"l1": MemoryCache(clock=clock), "l2": semantic})
    bounded = Bounded(MemoryCache(clock=clock), lambda out: Lru(100, on_evict=out))
    stack = Pipeline(
        layers={
            "answer": answer,
            "retrieval": bounded,
            "embedding": MemoryCache(clock=clock),
            "text": MemoryCache(clock=clock),
        },
        index=ExactIndex(),
        encoder=encoder,
        build_encoder=WordEncoder,
        blank_index=ExactIndex,
        reader=ExtractiveReader(),
        glossary={},
        k=3,
    )
    stack.semantic = semantic  # type: ignore[attr-defined]
    stack.bounded, stack.judgments = bounded, Judgments()  # type: ignore[attr-defined]
    stack.tiers = answer.tiers  # type: ignore[attr-defined]
    return stack


def play(arm: Any, level: float = 1.0, seed: int = 1) -> list[Event]:
    """Load, ask, edit, upgrade, ask again; what was recorded."""
    stack, trace, clock = small_stack(), Trace(), LogicalClock()
    recorder = Recorder(trace, ValueNames(), clock.now)
    ctx = RunContext(seed, level, clock, recorder)
    edited = Doc("acme-units", "Every request timeout is given in seconds.", "acme", 2, kind="convention")
    with changed(stack, arm, ctx), probed(stack, recorder):
        stack.upsert(DOCS)
        for step, do in enumerate(
            [
                *(lambda q=q: ask(q, stack, ctx, recorder) for q in QUERIES),
                lambda: stack.upsert([edited]),
                *(lambda q=q: ask(q, stack, ctx, recorder) for q in QUERIES),
            ],
            start=1,
        ):
            recorder.op = step
            clock.move_to(float(step))
            do()
    return trace.events


def scenario_files() -> list[Path]:
    return sorted((Path(__file__).resolve().parents[2] / "scenarios").glob("*.py"))
