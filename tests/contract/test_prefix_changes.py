"""The faults and fixes of the prefix cache: reversible, silent at level 0, fixes transparent on a clean stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the runner extra")
pytest.importorskip("transformers", reason="needs the runner extra")

from testbed.core.clock import LogicalClock
from testbed.core.errors import Unsupported
from testbed.core.names import ValueNames
from testbed.core.scenario import Arm
from testbed.core.types import Event, Key
from testbed.corpora import prompts
from testbed.probes.trace import Recorder
from testbed.run import scenarios
from testbed.run.arms import ask, changed, probed
from testbed.run.context import RunContext
from testbed.stacks import prefixed
from testbed.stacks.parts import Parts
from tests.contract.small_stack import Trace

pytestmark = pytest.mark.models

VARIANTS = scenarios.load("prefix-leak").variants
FAULTS = {v.name: v.faults[0] for v in VARIANTS}
FIXES = {fix.name: fix for v in VARIANTS for fix in v.fixes}
CORPUS = prompts.PromptCorpus(lambda query, versions: "")


def parts(learn: Any = lambda array, made_by, made_of: None) -> Parts:
    return Parts(None, "", LogicalClock(), "", lambda name: None, lambda: None, learn=learn)  # type: ignore[arg-type,return-value]


def play(arm: Arm, level: float = 1.0) -> list[Event]:
    """Two questions by four tenants in two sessions, and again after the adapter was reloaded."""
    trace, clock, names = Trace(), LogicalClock(), ValueNames()
    recorder = Recorder(trace, names, clock.now)
    ctx = RunContext(1, level, clock, recorder)
    stack = prefixed.build(parts(names.learn))
    asked = [q for q in CORPUS.queries if q.id.endswith(("mailer-0", "queue-1"))]
    try:
        with changed(stack, arm, ctx), probed(stack, recorder):
            stack.upsert(CORPUS.docs)
            for step, query in enumerate([replace(q, session=s) for s in ("t-01", "t-02") for q in asked] * 2, start=1):
                recorder.op = step
                if step == 2 * len(asked) + 1:
                    stack.upsert([CORPUS.revisions[0].doc])
                ask(query, stack, ctx, recorder)
    finally:
        stack.close()
    return trace.events


def answers(events: list[Event]) -> list[str]:
    return [e.value for e in events if e.kind == "answer"]


@pytest.fixture(scope="module")
def clean() -> list[Event]:
    return play(Arm("clean"))


@pytest.fixture
def stack() -> Iterator[Any]:
    built = prefixed.build(parts())
    yield built
    built.close()


def state(stack: Any) -> tuple[Any, ...]:
    p = stack.prefix
    return dict(stack.layers), p.keys, p.outer_keys, p.checks_hits, p.pins


def context() -> RunContext:
    clock = LogicalClock()
    return RunContext(1, 1.0, clock, Recorder(Trace(), ValueNames(), clock.now))


@pytest.mark.parametrize("change", [*FAULTS.values(), *FIXES.values()], ids=[*FAULTS, *FIXES])
def test_a_change_is_undone_when_its_block_ends_or_fails(stack: Any, change: Any) -> None:
    before = state(stack)
    with pytest.raises(ZeroDivisionError), change.applied(stack, context()):
        assert state(stack) != before or change.name == "pin-blocks"
        raise ZeroDivisionError
    assert state(stack) == before


@pytest.mark.parametrize("change", [*FAULTS.values(), *FIXES.values()], ids=[*FAULTS, *FIXES])
def test_a_stack_without_a_prefix_cache_is_unsupported(change: Any) -> None:
    class BlackBox:
        layers: dict[str, Any] = {}  # noqa: RUF012

    with pytest.raises(Unsupported), change.applied(BlackBox(), context()):
        pass


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_at_level_zero_changes_nothing_at_all(fault: Any, clean: list[Event]) -> None:
    assert play(Arm("faulty", (fault,)), level=0.0) == clean


@pytest.mark.parametrize("fix", FIXES.values(), ids=FIXES)
def test_a_fix_is_invisible_on_a_clean_stack(fix: Any, clean: list[Event]) -> None:
    assert answers(play(Arm("clean+fix", (), (fix,)))) == answers(clean)


def test_an_answer_from_the_cache_is_the_one_without_it(clean: list[Event]) -> None:
    assert any(e.kind == "hit" and e.layer == "prefix" for e in clean)
    bypassed = play(Arm("clean-without:prefix", bypass=("prefix",)))
    assert not any(e.kind == "hit" and e.layer == "prefix" for e in bypassed)
    assert answers(bypassed) == answers(clean)


class Spy:
    """Remembers the keys that are put."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.keys = inner, list[Key]()

    def get(self, key: Key) -> Any | None:
        return self._inner.get(key)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self.keys.append(key)
        self._inner.put(key, value, ttl_s=ttl_s)


def test_the_layer_is_a_cache_of_blocks_that_forgets_what_it_is_told_to(stack: Any) -> None:
    layer = stack.layers["prefix"]
    stack.layers["prefix"] = spy = Spy(layer)
    stack.upsert(CORPUS.docs)
    stack.ask(CORPUS.queries[0])
    key = spy.keys[0]
    value = layer.get(key)
    assert value is not None and value["made_of"] == key.digest()
    assert layer.get(key.replace(tenant="somebody-else")) is None
    layer.delete(key)
    assert layer.get(key) is None and layer.fresh().get(key) is None
    layer.put(key, value)
    assert (layer.get(key)["rows"] == value["rows"]).all()
