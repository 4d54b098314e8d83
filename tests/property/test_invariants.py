"""A cache is a dict with losses: however it is asked and whatever it forgets, only a broken key breaks that."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.core.history import History
from testbed.diagnose.judge import INVARIANTS
from testbed.invariants.losses import DictWithLosses
from testbed.metrics.serving import serve
from tests.histories.trace import DictStack

TENANTS = ("acme", "birch", "cedar")
CACHES = ("answer", "retrieval", "embedding")

asks = st.tuples(st.just("ask"), st.sampled_from(TENANTS), st.sampled_from(["how long?", "how many?"]))
upserts = st.tuples(st.just("upsert"), st.sampled_from(TENANTS), st.none())
losses = st.tuples(st.just("lose"), st.sampled_from((*CACHES, "text")), st.none())
workloads = st.lists(asks | upserts | losses, max_size=25)
Step = tuple[str, str, str | None]


def played(steps: list[Step], drop: dict[str, frozenset[str]]) -> DictStack:
    stack = DictStack(TENANTS, drop)
    for verb, what, question in steps:
        if verb == "ask":
            stack.ask(what, question or "")
        elif verb == "upsert":
            stack.upsert(what)
        else:
            stack.lose(what)
    return stack


@given(steps=workloads)
def test_a_correct_stack_breaks_no_invariant(steps: list[Step]) -> None:
    stack = played(steps, {})
    history = History(stack.evidence())
    assert not stack.wrong_hits
    assert [i.name for i in INVARIANTS if i.judge(history).holds is False] == []
    assert {served.outcome for served in serve(history).lookups} <= {"miss", "fresh"}


@settings(max_examples=200)
@given(steps=workloads, layer=st.sampled_from(CACHES), part=st.sampled_from(["tenant", "text"]))
def test_a_key_that_loses_a_part_is_reduced_to_one_write_and_one_read(steps: list[Step], layer: str, part: str) -> None:
    stack = played(steps, {layer: frozenset({part})})
    evidence = stack.evidence()
    verdict = DictWithLosses().check(evidence)
    # The stack itself counts the hits of a value that was never put under the key that was asked for.
    assert verdict.violations >= stack.wrong_hits
    assert (verdict.holds is False) == bool(verdict.violations)
    if verdict.violations:
        assert verdict.witness is not None
        write, read = verdict.witness.ops
        assert 0 < write < read
        assert verdict.witness.layer == layer
        assert f"op {read}: " in verdict.witness.story
        assert f" op {write}" in verdict.witness.story
        kinds = {e.kind for e in evidence.events if e.layer == layer and e.op in (write, read)}
        assert {"put", "hit"} <= kinds


@given(steps=workloads, layer=st.sampled_from(CACHES))
def test_a_leak_is_seen_by_isolation_exactly_when_an_asker_was_served_what_is_not_theirs(
    steps: list[Step], layer: str
) -> None:
    evidence = played(steps, {layer: frozenset({"tenant"})}).evidence()
    history = History(evidence)
    verdict = next(i for i in INVARIANTS if i.name == "no-cross-tenant").judge(history)
    leaked = 0
    for ask in history.asks.values():
        assert ask.answer is not None
        shown = evidence.texts[ask.answer.value] + " ".join(map(str, ask.answer.data["ranking"]))  # type: ignore[call-overload]
        leaked += any(other in shown for other in TENANTS if other != ask.op.tenant)
    assert verdict.violations == leaked
    if leaked:
        assert verdict.witness is not None
        assert len(verdict.witness.ops) == 2


@given(steps=workloads, layer=st.sampled_from(["answer", "retrieval"]))
def test_a_key_without_its_epoch_is_stale_exactly_when_a_replaced_revision_was_served(
    steps: list[Step], layer: str
) -> None:
    stack = played(steps, {layer: frozenset({"epoch"})})
    history = History(stack.evidence())
    verdict = next(i for i in INVARIANTS if i.name == "freshness").judge(history)
    current = dict.fromkeys(TENANTS, 1)
    stale = 0
    for op in stack.evidence().ops:
        if op.do == "upsert":
            current[op.tenant] = op.version
        ask = history.asks.get(op.index)
        stale += ask is not None and any(version != current[op.tenant] for _, version, _ in ask.sources)
    assert verdict.violations == stale
