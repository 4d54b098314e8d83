"""One arm: the plan's ops replayed on a fresh stack, with changes inside and probes around."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from testbed.caches.redis import forget
from testbed.core.clock import LogicalClock
from testbed.core.errors import InvalidInput, Unsupported
from testbed.core.names import ValueNames
from testbed.core.ports import Cache, Encoder, Index, Stack
from testbed.core.scenario import Arm
from testbed.core.types import Doc, Op, Query, Upgrade
from testbed.models import encoders
from testbed.models.memo import default_dir
from testbed.probes.trace import Recorder, Sink, TracedCache, TracedSearch, TracedWrites
from testbed.run.context import RunContext
from testbed.run.plan import Plan
from testbed.stacks.held import held_bytes
from testbed.stacks.parts import Parts
from testbed.stacks.pipeline import expanded
from testbed.stores import catalogue

Progress = Callable[[str, int, int], None]


class Server(NamedTuple):
    """A Redis-protocol server and the prefix below which this run writes."""

    client: Any
    namespace: str


class Ran(NamedTuple):
    """Why the arm is unsupported by this stack, or "" and what its caches held at the end (see ``stacks.held``)."""

    unsupported: str
    held_bytes: int = 0


class ArmRunner:
    """Replays the plan's ops on one fresh stack after another."""

    def __init__(self, plan: Plan, server: Server, progress: Progress) -> None:
        self._plan = plan
        self._server = server
        self._progress = progress
        self._build = builder(plan.settings.stack)
        self._names = ValueNames()
        self._encoders: dict[str, Encoder] = {}

    def run(self, arm: Arm, sink: Sink) -> Ran:
        """Run one arm into ``sink``."""
        settings = self._plan.settings
        clock = LogicalClock()
        recorder = Recorder(sink, self._names, clock.now)
        ctx = RunContext(settings.seed, settings.level, clock, recorder)
        namespace = f"{self._server.namespace}{self._plan.arms.index(arm)}:"
        stack = self._build(self._parts(namespace, clock, recorder))
        try:
            with changed(stack, arm, ctx), probed(stack, recorder):
                self._replay(arm, stack, ctx, clock, recorder)
                ran = Ran("", held_bytes(stack, self._server.client, namespace))
        except Unsupported as why:
            ran = Ran(str(why))
        finally:
            stack.close()
        forget(self._server.client, namespace)  # each SCAN of a later arm would go through what this one leaves
        return ran

    def embed_ahead(self) -> None:
        """Embed what the arms will ask for, in long lists: they use every core, single questions one."""
        plan = self._plan
        if not plan.variant.encoder:
            return
        docs = [
            d.text
            for op in plan.ops
            for d in (op.item if isinstance(op.item, tuple) else (op.item,))
            if isinstance(d, Doc)
        ]
        asked = [op.item for op in plan.ops if isinstance(op.item, Query)]
        glossary = plan.corpus.glossary if plan.variant.expands_questions else {}
        questions = {q.text for q in asked} | {expanded(q.text, glossary.get(q.tenant, {})) for q in asked}
        upgrades = [op.item.encoder for op in plan.ops if isinstance(op.item, Upgrade)]
        for name in dict.fromkeys([plan.variant.encoder, *upgrades]):
            encoder = self._encoder(name)
            encoder.encode(list(dict.fromkeys(docs)), "document")
            encoder.encode(sorted(questions), "query")

    def _parts(self, namespace: str, clock: LogicalClock, recorder: Recorder) -> Parts:
        settings, variant = self._plan.settings, self._plan.variant

        def new_index() -> Index:
            return TracedWrites(catalogue.build(settings.store, namespace, settings.chroma_url), recorder)

        def traced(layer: str, cache: Cache) -> Cache:
            return TracedCache(cache, layer, recorder)

        return Parts(
            redis=self._server.client,
            namespace=namespace,
            clock=clock,
            encoder=variant.encoder,
            build_encoder=self._encoder,
            new_index=new_index,
            glossary=self._plan.corpus.glossary if variant.expands_questions else {},
            traced=traced,
            learn=self._names.learn,
        )

    def _replay(self, arm: Arm, stack: Stack, ctx: RunContext, clock: LogicalClock, recorder: Recorder) -> None:
        ops = self._plan.ops
        for done, op in enumerate(ops):
            if done % 50 == 0:
                self._progress(arm.name, done, len(ops))
            clock.move_to(op.at_s)
            recorder.op = op.index
            perform(op, stack, ctx, recorder)
        recorder.event("stack", "describe", {}, "", {"parts": stack.describe()})

    def _encoder(self, name: str) -> Encoder:
        """Encoders are shared by all arms of a run: they are functions of text, and hold no state of an arm."""
        if name not in self._encoders:
            texts = [d.text for d in self._plan.corpus.docs]
            self._encoders[name] = encoders.build(
                name,
                texts,
                default_dir(),
                self._names,
                on_progress=lambda done, of: self._progress("embedding texts (once)", done, of),
            )
        return self._encoders[name]


def perform(op: Op, stack: Stack, ctx: RunContext, recorder: Recorder) -> None:
    """One op on the stack; an ask is recorded with what the asker got."""
    match op.do, op.item:
        case "load", tuple() as docs:
            stack.upsert(docs)
        case "upsert", Doc() as doc:
            stack.upsert([doc])
        case "delete", Doc() as doc:
            stack.delete([doc.id])
        case "upgrade", Upgrade() as upgrade:
            stack.upgrade(upgrade)
        case "ask", Query() as query:
            ask(query, stack, ctx, recorder)


def ask(query: Query, stack: Stack, ctx: RunContext, recorder: Recorder) -> None:
    ctx.asking(query)
    started = recorder.started()
    answer = stack.ask(query)
    recorder.timing("stack", "ask", started)
    ctx.asking(None)
    sources = [[s.doc_id, s.version, recorder.text(s.text)] for s in answer.sources]
    recorder.event(
        "stack",
        "answer",
        {"query": query.id, "tenant": query.tenant},
        recorder.text(answer.text),
        {"ranking": list(answer.ranking), "sources": sources, "abstained": answer.abstained},
    )


@contextmanager
def changed(stack: Stack, arm: Arm, ctx: RunContext) -> Iterator[None]:
    """The service as it is built, faults around it, fixes around them, bypassed layers around those."""
    with ExitStack() as undo:
        for change in (*arm.given, *arm.faults, *arm.fixes):
            undo.enter_context(change.applied(stack, ctx))
        for layer in arm.bypass:
            undo.enter_context(stack.without(layer))
        yield


@contextmanager
def probed(stack: Any, recorder: Recorder) -> Iterator[None]:
    """Probes outermost: they see what the pipeline sees."""
    layers = dict(stack.layers)
    index = getattr(stack, "index", None)
    for layer, cache in layers.items():
        stack.layers[layer] = TracedCache(cache, layer, recorder)
    if index is not None:
        stack.index = TracedSearch(index, recorder)
    try:
        yield
    finally:
        stack.layers.update(layers)
        if index is not None:
            stack.index = index


BUILT_IN = {"reference": "testbed.stacks.reference:build", "llama-index": "testbed.stacks.llama_index:build"}


def is_deterministic(stack: str) -> bool:
    """Whether a stack says that the same seed gives the same trace: the built-in ones do.

    A stack of the user's own does by ``DETERMINISTIC = True`` in the module of its build function.
    """
    if stack in BUILT_IN:
        return True
    builder(stack)  # says what is wrong with a stack that cannot be imported
    return getattr(importlib.import_module(stack.partition(":")[0]), "DETERMINISTIC", False) is True


def builder(stack: str) -> Callable[[Parts], Stack]:
    """The ``build`` function of a stack: a built-in one by name, or ``package.module:function``."""
    module_name, _, function = BUILT_IN.get(stack, stack).partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:  # ValueError: no name at all
        raise InvalidInput(
            f"STACK={stack}: cannot import {module_name} ({error}); testbed doctor says what is missing"
        ) from error
    build = getattr(module, function, None)
    if not callable(build):
        raise InvalidInput(f"STACK={stack}: {module_name} has no function {function!r}; expected build(parts) -> Stack")
    return build  # type: ignore[no-any-return]
