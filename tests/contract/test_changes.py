"""Every fault and fix of every scenario through one suite: reversible, silent at level 0, and fixes are transparent."""

from __future__ import annotations

import re
from typing import Any

import pytest

from testbed.core.clock import LogicalClock
from testbed.core.errors import Unsupported
from testbed.core.names import ValueNames
from testbed.core.scenario import Arm
from testbed.core.types import Event
from testbed.probes.trace import Recorder
from testbed.run import scenarios
from testbed.run.context import RunContext
from tests.contract.small_stack import Trace, play, small_stack


def changes(role: str) -> dict[str, Any]:
    """Faults or fixes of all scenarios that run on a pipeline, by name."""
    found = {}
    for name in scenarios.names():
        for variant in scenarios.load(name).variants:
            for change in getattr(variant, role):
                if all(hasattr(small_stack(), need.partition(".")[0]) for need in change.needs):
                    found[label(change)] = change
    return found


def label(change: Any) -> str:
    """The change and its settings, the same in every process: what it needs is a set, and has no order."""
    return re.sub(r",? ?needs=frozenset\(.*?\)", "", repr(change))


FAULTS, FIXES, GIVEN = changes("faults"), changes("fixes"), changes("given")


def context(level: float = 1.0) -> RunContext:
    clock = LogicalClock()
    return RunContext(1, level, clock, Recorder(Trace(), ValueNames(), clock.now))


def answers(events: list[Event]) -> list[tuple[str, object]]:
    return [(e.value, e.data["ranking"]) for e in events if e.kind == "answer"]


@pytest.fixture(scope="module")
def clean() -> list[Event]:
    return play(Arm("clean"))


def test_there_are_changes_to_check() -> None:
    assert len(FAULTS) >= 6 and len(FIXES) >= 8


@pytest.mark.parametrize("change", [*FAULTS.values(), *FIXES.values()], ids=[*FAULTS, *FIXES])
def test_a_change_is_undone_when_its_block_ends(change: Any) -> None:
    stack = small_stack()
    before = (dict(stack.layers), stack.index, stack.context, stack.encoder, stack.semantic.gate)  # type: ignore[attr-defined]
    with change.applied(stack, context()):
        pass
    assert (dict(stack.layers), stack.index, stack.context, stack.encoder, stack.semantic.gate) == before  # type: ignore[attr-defined]


@pytest.mark.parametrize("change", [*FAULTS.values(), *FIXES.values()], ids=[*FAULTS, *FIXES])
def test_a_change_is_undone_when_its_block_fails(change: Any) -> None:
    stack = small_stack()
    before = (dict(stack.layers), stack.index, stack.context)
    with pytest.raises(ZeroDivisionError), change.applied(stack, context()):
        raise ZeroDivisionError
    assert (dict(stack.layers), stack.index, stack.context) == before


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_at_level_zero_changes_nothing_at_all(fault: Any, clean: list[Event]) -> None:
    assert play(Arm("faulty", (fault,)), level=0.0) == clean


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_touches_more_the_higher_its_level(fault: Any) -> None:
    ctx = [context(level) for level in (0.0, 0.3, 1.0)]
    tokens = [str(n) for n in range(200)]
    touched = [{t for t in tokens if c.affects(fault.name, t)} for c in ctx]
    assert touched[0] == set() and touched[2] == set(tokens)
    assert touched[0] < touched[1] < touched[2]


@pytest.mark.parametrize("fix", FIXES.values(), ids=FIXES)
def test_a_fix_is_invisible_on_a_clean_stack(fix: Any, clean: list[Event]) -> None:
    assert answers(play(Arm("clean+fix", (), (fix,)))) == answers(clean)


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize("fix", FIXES.values(), ids=FIXES)
def test_a_fix_is_invisible_on_a_clean_stack_however_it_is_built(fix: Any, given: Any) -> None:
    built = play(Arm("clean", given=(given,)))
    assert answers(play(Arm("clean+fix", (), (fix,), given=(given,)))) == answers(built)


@pytest.mark.parametrize("change", [*FAULTS.values(), *FIXES.values()], ids=[*FAULTS, *FIXES])
def test_a_stack_without_what_a_change_needs_is_unsupported(change: Any) -> None:
    class BlackBox:
        layers: dict[str, Any] = {}  # noqa: RUF012

    with pytest.raises(Unsupported), change.applied(BlackBox(), context()):
        pass
