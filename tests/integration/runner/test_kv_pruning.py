"""kv-pruning: a model that can look things up, until the row that it needs was pruned; the host tier brings it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the runner extra")
pytest.importorskip("transformers", reason="needs the runner extra")

from testbed.core.clock import LogicalClock
from testbed.core.errors import InvalidInput, Unsupported
from testbed.core.names import ValueNames
from testbed.corpora.pages import PageCorpus
from testbed.probes.trace import Recorder
from testbed.run import scenarios
from testbed.run.context import RunContext
from testbed.stacks.pruned import EVERYTHING, POLICY, PrunedStack
from tests.contract.small_stack import Trace

pytestmark = pytest.mark.models
CORPUS = PageCorpus()
VARIANTS = scenarios.load("kv-pruning").variants
FAULTS = {v.name: v.faults[0] for v in VARIANTS}
FIXES = {f.name: f for f in VARIANTS[0].fixes}


@pytest.fixture(scope="module")
def shared() -> Iterator[PrunedStack]:
    """One stack for all tests: what it has read it keeps, by text and policy."""
    stack = PrunedStack()
    stack.upsert(CORPUS.docs)
    yield stack
    stack.close()


def right(stack: Any) -> float:
    asked = CORPUS.queries
    return sum(stack.ask(q).text in CORPUS.gold(0, q, {}).accept for q in asked) / len(asked)


def context(level: float = 1.0) -> RunContext:
    clock = LogicalClock()
    return RunContext(1, level, clock, Recorder(Trace(), ValueNames(), clock.now))


def test_every_fact_is_found_with_every_row_and_with_a_quarter_of_them_and_a_host_tier(shared: PrunedStack) -> None:
    assert right(shared) == 1.0
    with shared.without("kv"):
        assert right(shared) == 1.0
    kept = {policy: cache.keep_ratio for (_, policy), cache in shared._read.items()}
    assert kept[POLICY] < 0.3 and kept[replace(POLICY, **EVERYTHING)] == 1.0


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_is_dropped_before_the_question_is_lost_unless_it_is_kept_on_the_host(
    shared: PrunedStack, fault: Any
) -> None:
    before = shared.policy_of
    with fault.applied(shared, context()):
        assert right(shared) < 0.5
        with FIXES["host-tier"].applied(shared, context()):
            assert right(shared) == 1.0
    assert shared.policy_of is before
    with fault.applied(shared, context(0.0)):
        assert all(shared.policy_of(q) == POLICY for q in CORPUS.queries)


@pytest.mark.parametrize("fix", FIXES.values(), ids=FIXES)
def test_a_fix_is_invisible_on_a_clean_stack(shared: PrunedStack, fix: Any) -> None:
    with fix.applied(shared, context()):
        assert right(shared) == 1.0


@pytest.mark.parametrize("change", [*FAULTS.values(), *FIXES.values()], ids=[*FAULTS, *FIXES])
def test_a_stack_without_a_pruned_cache_is_unsupported(change: Any) -> None:
    with pytest.raises(Unsupported), change.applied(object(), context()):
        pass


def test_a_lower_threshold_keeps_more_and_loses_less(shared: PrunedStack) -> None:
    found = []
    for threshold in (0.0, 0.3, 0.8):
        shared.policy_of = lambda q, t=threshold: replace(POLICY, host_blocks=0, max_blocks=64, threshold=t)  # type: ignore[misc]
        found.append(right(shared))
    del shared.policy_of
    shared.policy_of = lambda query: POLICY
    assert found[0] == 1.0 and found[0] > found[1] > found[2]


def test_an_answer_does_not_change_what_was_read_and_unknown_words_are_refused(shared: PrunedStack) -> None:
    first = [shared.ask(q).text for q in CORPUS.queries]
    shared._said.clear()
    assert [shared.ask(q).text for q in reversed(CORPUS.queries)] == first[::-1]
    with pytest.raises(InvalidInput, match="does not know 'quux'"):
        shared._model.read("quux", POLICY, 64)
