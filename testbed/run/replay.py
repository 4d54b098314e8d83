"""Some ops of a run played again on a fresh stack, the evidence kept in memory; also what a stand-alone file runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from testbed.caches.redis import clear_namespace
from testbed.core import digest
from testbed.core.errors import HarnessError, InvalidInput
from testbed.core.evidence import Evidence
from testbed.core.ports import Change, Corpus, Invariant
from testbed.core.scenario import Arm, Expect, Scenario, Variant, arm_named
from testbed.core.types import Doc, Event, Gold, Op, Query, Revision
from testbed.run import plan as planning
from testbed.run import recall, scenarios, services
from testbed.run.arms import ArmRunner, Progress, Server
from testbed.run.plan import Plan
from testbed.run.services import RedisService
from testbed.run.settings import Settings


def _silent(what: str, done: int, of: int) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """All that one replay depends on.

    Parameters
    ----------
    ops : the load first; they keep the numbers and times of the run that they were taken from
    faults, fixes, bypass, given : as in an arm
    gold : what each asker should be served; an invariant may need ``subject`` and ``relevant``
    glossary : per tenant, what its words stand for: its questions are expanded with it
    canaries : per tenant, a word that only its documents hold
    seed, level : which keys, documents or batches a fault touches depends on them
    """

    ops: tuple[Op, ...]
    faults: tuple[Change, ...] = ()
    fixes: tuple[Change, ...] = ()
    bypass: tuple[str, ...] = ()
    given: tuple[Change, ...] = ()
    gold: tuple[Gold, ...] = ()
    glossary: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    canaries: Mapping[str, str] = field(default_factory=dict)
    encoder: str = "minilm"
    stack: str = "reference"
    store: str = "faiss"
    seed: int = 42
    level: float = 1.0


def script_of(plan: Plan, arm: Arm, kept: Set[int] | None = None, docs: Set[str] | None = None) -> Script:
    """An arm of a plan as a script.

    Parameters
    ----------
    kept : indices of the ops to play, None for all; the truth is worked out anew for them
    docs : ids of the documents to load, None for all
    """
    ops = tuple(op for op in plan.ops if kept is None or op.index in kept)
    gold = planning.truth(plan.corpus, ops)
    if docs is not None:
        ops = tuple(_loading(op, docs) for op in ops)
        held = {doc.id for op in ops for doc in _docs(op)}
        gold = {at: replace(g, relevant={i: n for i, n in g.relevant.items() if i in held}) for at, g in gold.items()}
    tenants = {doc.tenant for op in ops for doc in _docs(op)} | {gold.tenant for gold in gold.values()}
    settings = plan.settings
    return Script(
        ops=ops,
        faults=arm.faults,
        fixes=arm.fixes,
        bypass=arm.bypass,
        given=arm.given,
        gold=tuple(gold.values()),
        glossary=_glossary(plan, ops),
        canaries={tenant: word for tenant, word in plan.corpus.canaries.items() if tenant in tenants},
        encoder=plan.variant.encoder,
        stack=settings.stack,
        store=settings.store,
        seed=settings.seed,
        level=settings.level,
    )


def reopened(described: Mapping[str, Any], arm: str, scenarios_dir: Path | None = None) -> tuple[Plan, Arm]:
    """The plan of the run with this manifest, made anew, and one of its arms."""
    plan = planning.make(recall.settings_of(described, scenarios_dir=scenarios_dir))
    return plan, arm_named(arm, plan.variant, scenarios.fixes(scenarios_dir), plan.layers)


def with_references(plan: Plan, ids: Set[str]) -> set[str]:
    """Documents and those that they point to."""
    docs = [doc for op in plan.ops for doc in _docs(op) if doc.id in ids]
    return {*ids, *(ref for doc in docs for ref in doc.refs)}


def main(script: Script, invariant: Invariant) -> int:
    """Play a script and say whether an invariant holds: exit code 0 when it does, 1 when not, 4 could not tell."""
    try:
        with Player() as player:
            verdict = invariant.check(player.play(script))
    except HarnessError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return error.exit_code
    if verdict.holds is None:
        print(f"{verdict.invariant}: could not tell: {verdict.why}")
        return 4
    if verdict.holds:
        print(f"{verdict.invariant} holds")
        return 0
    story = "" if verdict.witness is None else f": {verdict.witness.story}"
    print(f"{verdict.invariant} is VIOLATED{story}")
    return 1


class Player:
    """Plays scripts, each on a stack of its own, against one Redis-protocol server. A context manager."""

    def __init__(self, redis_url: str = "", progress: Progress = _silent) -> None:
        self._redis_url = redis_url
        self._progress = progress
        self._open = ExitStack()
        self._service: RedisService | None = None
        self.played = 0

    def __enter__(self) -> Self:
        self._service = self._open.enter_context(services.connect(self._redis_url or None))
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.close()

    def play(self, script: Script) -> Evidence:
        """What happened.

        Raises
        ------
        InvalidInput : the stack lacks what a change or a bypass needs.
        """
        assert self._service is not None
        namespace = f"{self._service.namespace}replay{self.played}:"
        self.played += 1
        self._progress("replaying", self.played, 0)
        name = "faulty" + (f"-without:{'+'.join(script.bypass)}" if script.bypass else "")
        arm = Arm(name, script.faults, script.fixes, script.bypass, script.given)
        sink = Memory()
        try:
            runner = ArmRunner(_plan(script, arm), Server(self._service.client, namespace), _silent)
            if why := runner.run(arm, sink).unsupported:
                raise InvalidInput(f"STACK={script.stack} cannot play this: {why}")
        finally:
            clear_namespace(self._service.client, namespace)
        return Evidence(
            arm=arm.name,
            ops=tuple(planning.op_rows(script.ops)),
            events=tuple(sink.events),
            gold={gold.op: gold for gold in script.gold},
            docs={(row.doc_id, row.version): row for row in planning.doc_rows(script.ops)},
            texts={digest.of_text(text): text for text in planning.texts(script.ops)} | sink.texts,
            canaries=script.canaries,
            lexicon=None,
        )


class Memory:
    """Keeps what is recorded of one arm."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.texts: dict[str, str] = {}

    def event(self, event: Event) -> None:
        self.events.append(event)

    def text(self, name: str, text: str) -> None:
        self.texts[name] = text

    def timing(self, op: int, layer: str, kind: str, ns: int) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _Written:
    """The documents and tables of a script, in the shape of a data set; also the workload that gives its ops."""

    docs: tuple[Doc, ...]
    glossary: Mapping[str, Mapping[str, str]]
    canaries: Mapping[str, str]
    recorded: tuple[Op, ...]
    name: str = "script"
    digest: str = ""
    revisions: tuple[Revision, ...] = ()
    queries: tuple[Query, ...] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    subjects: Mapping[str, str] = field(default_factory=dict)
    lexicon: Mapping[str, Any] | None = None

    def gold(self, op: int, query: Query, versions: Mapping[str, int]) -> Gold:
        return Gold(op, query.id, query.tenant, "", {})

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]:
        return self.recorded


def _plan(script: Script, arm: Arm) -> Plan:
    written = _Written(
        tuple(doc for op in script.ops if op.do == "load" for doc in _docs(op)),
        script.glossary,
        script.canaries,
        script.ops,
    )
    variant = Variant(
        "script", "", script.faults, script.fixes, written, Expect("", 0.0, "", ()), encoder=script.encoder
    )
    return Plan(
        settings=Settings("script", seed=script.seed, level=script.level, stack=script.stack, store=script.store),
        scenario=Scenario("script", "", "", (variant,)),
        variant=variant,
        scenario_digest="",
        corpus=written,
        ops=script.ops,
        gold={gold.op: gold for gold in script.gold},
        arms=(arm,),
        layers=(),
    )


def _docs(op: Op) -> Iterable[Doc]:
    """The documents that an op brings."""
    if isinstance(op.item, tuple):
        return op.item
    return (op.item,) if op.do == "upsert" and isinstance(op.item, Doc) else ()


def _loading(op: Op, docs: Set[str]) -> Op:
    return replace(op, item=tuple(d for d in op.item if d.id in docs)) if isinstance(op.item, tuple) else op


def _glossary(plan: Plan, ops: Iterable[Op]) -> dict[str, dict[str, str]]:
    """Of each asker's glossary the words that its questions hold: no other is ever looked at."""
    if not plan.variant.expands_questions:
        return {}
    out: dict[str, dict[str, str]] = {}
    for op in ops:
        if isinstance(op.item, Query):
            text = op.item.text.lower()
            held = {t: n for t, n in plan.corpus.glossary.get(op.item.tenant, {}).items() if t.lower() in text}
            out[op.item.tenant] = {**out.get(op.item.tenant, {}), **held}
    return {tenant: dict(sorted(words.items())) for tenant, words in sorted(out.items()) if words}
