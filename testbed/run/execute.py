"""The run loop: replay the same ops on a fresh stack per arm, record everything, judge what was recorded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from testbed.core.clock import LogicalClock
from testbed.core.errors import InvalidInput, Unsupported
from testbed.core.names import ValueNames
from testbed.core.ports import Cache, Encoder, Index, Stack
from testbed.core.scenario import Arm
from testbed.core.types import Doc, Op, Query, Upgrade
from testbed.models import encoders
from testbed.models.memo import default_dir
from testbed.probes.trace import Recorder, TracedCache, TracedSearch, TracedWrites
from testbed.record import manifest
from testbed.record.folder import ArmWriter, RunReader, RunWriter
from testbed.run import plan as planning
from testbed.run import services
from testbed.run.context import RunContext
from testbed.run.settings import Settings
from testbed.stacks.parts import Parts
from testbed.stacks.pipeline import LAYERS
from testbed.stores import catalogue

Progress = Callable[[str, int, int], None]


class Judge(Protocol):
    """Judges a recorded run; lives above this package, which only records."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Version by name of every metric and invariant."""

    def __call__(
        self, reader: RunReader, plan: planning.Plan, unsupported: Mapping[str, str], run_digest: str
    ) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        """The summary, and one score row per arm and ask."""


def run_scenario(
    settings: Settings, judge: Judge, progress: Progress = lambda what, done, of: None
) -> Path:
    """Run every arm of a scenario, have it judged, and write the results folder.

    Parameters
    ----------
    judge : turns the recorded evidence into the summary
    progress : called with what is being done, how many of its steps are done, and of how many

    Returns
    -------
    The finished folder.

    Raises
    ------
    HarnessError : any of them; a half-written folder stays behind and says so in its manifest.
    """
    plan = planning.make(settings, LAYERS)
    build = builder(settings.stack)
    described = manifest.describe(
        scenario=plan.scenario.name,
        variant=plan.variant.name,
        seed=settings.seed,
        level=settings.level,
        scenario_digest=plan.scenario_digest,
        data={"name": plan.corpus.name, "digest": plan.corpus.digest},
        settings={"stack": settings.stack, "store": settings.store, "queries": settings.queries},
        arms=[arm.name for arm in plan.arms],
        metrics=judge.versions,
        argv=settings.argv or None,
    )
    with ExitStack() as open_now:
        service = open_now.enter_context(services.connect(settings.redis_url or None))
        writer = open_now.enter_context(RunWriter.start(settings.results_dir, described))
        writer.write_inputs(
            ops=planning.op_rows(plan.ops),
            docs=planning.doc_rows(plan.ops),
            gold=list(plan.gold.values()),
            texts=planning.texts(plan.ops),
            canaries=plan.corpus.canaries,
            lexicon=plan.corpus.lexicon,
        )
        runner = ArmRunner(plan, build, service, progress)
        unsupported: dict[str, str] = {}
        for number, arm in enumerate(plan.arms):
            with writer.arm(arm.name) as sink:
                why = runner.run(arm, number, sink)
            if why:
                unsupported[arm.name] = why
        progress("judging", 0, 1)
        content, rows = judge(writer.reader(), plan, unsupported, writer.digest())
        progress("judging", 1, 1)
        return writer.finish(content, rows)


class ArmRunner:
    """Replays the plan's ops on one fresh stack after another."""

    def __init__(
        self,
        plan: planning.Plan,
        build: Callable[[Parts], Stack],
        service: services.RedisService,
        progress: Progress,
    ) -> None:
        self._plan = plan
        self._build = build
        self._service = service
        self._progress = progress
        self._names = ValueNames()
        self._encoders: dict[str, Encoder] = {}

    def run(self, arm: Arm, number: int, sink: ArmWriter) -> str:
        """Run one arm into ``sink``; why it is unsupported by this stack, or ""."""
        settings = self._plan.settings
        clock = LogicalClock()
        recorder = Recorder(sink, self._names, clock.now)
        ctx = RunContext(settings.seed, settings.level, clock, recorder)
        namespace = f"{self._service.namespace}{number}:"

        def new_index() -> Index:
            return TracedWrites(catalogue.build(settings.store, namespace, settings.chroma_url), recorder)

        def traced(layer: str, cache: Cache) -> Cache:
            return TracedCache(cache, layer, recorder)

        stack = self._build(
            Parts(
                redis=self._service.client,
                namespace=namespace,
                clock=clock,
                encoder=self._plan.variant.encoder,
                build_encoder=self._encoder,
                new_index=new_index,
                glossary=self._plan.corpus.glossary,
                traced=traced,
            )
        )
        try:
            with changed(stack, arm, ctx), probed(stack, recorder):
                self._replay(arm, stack, ctx, clock, recorder)
        except Unsupported as why:
            return str(why)
        finally:
            stack.close()
        return ""

    def _replay(
        self, arm: Arm, stack: Stack, ctx: RunContext, clock: LogicalClock, recorder: Recorder
    ) -> None:
        ops = self._plan.ops
        for done, op in enumerate(ops):
            if done % 50 == 0:
                self._progress(arm.name, done, len(ops))
            clock.move_to(op.at_s)
            recorder.op = op.index
            perform(op, stack, ctx, recorder)
        recorder.event("stack", "describe", {}, "", {"parts": stack.describe()})
        self._progress(arm.name, len(ops), len(ops))

    def _encoder(self, name: str) -> Encoder:
        """Encoders are shared by all arms of a run: they are functions of text, and hold no state of an arm."""
        if name not in self._encoders:
            corpus = self._plan.corpus
            self._encoders[name] = encoders.build(name, [d.text for d in corpus.docs], default_dir(), self._names)
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
    """Faults inside, fixes around them, bypassed layers around those."""
    with ExitStack() as undo:
        for change in (*arm.faults, *arm.fixes):
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


def builder(stack: str) -> Callable[[Parts], Stack]:
    """The ``build`` function of a stack: a built-in one by name, or ``package.module:function``."""
    known = {"reference": "testbed.stacks.reference:build", "llama-index": "testbed.stacks.llama_index:build"}
    module_name, _, function = known.get(stack, stack).partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise InvalidInput(f"STACK={stack}: cannot import {module_name} ({error}); testbed doctor says what is missing") from error
    build = getattr(module, function, None)
    if not callable(build):
        raise InvalidInput(f"STACK={stack}: {module_name} has no function {function!r}; expected build(parts) -> Stack")
    return build  # type: ignore[no-any-return]
