from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from testbed.core.errors import InvalidInput
from testbed.core.seeds import stream
from testbed.core.types import Doc, Op, Query, Revision, Upgrade
from testbed.corpora.answers import answer_corpus
from testbed.corpora.facts import FactCorpus
from testbed.corpora.ledger import build_ledger
from testbed.workloads.edits import choose, positions
from testbed.workloads.interleave import interleave
from testbed.workloads.stream import Stream
from testbed.workloads.zipf import Zipf

ALL_DRIFT = ("unit", "currency", "enum", "composite", "policy-date", "definition")


@cache
def ledger() -> FactCorpus:
    return build_ledger()


def asks(ops: tuple[Op, ...]) -> list[Query]:
    return [op.item for op in ops if isinstance(op.item, Query)]


def test_the_first_op_loads_the_corpus_and_the_rest_are_asks() -> None:
    ops = Stream().ops(ledger(), 42, 100)
    assert ops[0] == Op(0, 0.0, "load", ledger().docs)
    assert [op.do for op in ops[1:]] == ["ask"] * 100
    assert [op.index for op in ops] == list(range(101))
    assert [op.at_s for op in ops] == [float(i) for i in range(101)]


def test_time_passes_by_the_gap() -> None:
    assert [op.at_s for op in Stream(gap_s=0.5).ops(ledger(), 1, 2)] == [0.0, 0.5, 1.0]


def test_the_same_seed_gives_the_same_ops_and_another_seed_others() -> None:
    workload = Stream(edits=("*",), about=("unit",), upgrade="lsa")
    assert workload.ops(ledger(), 42, 60) == workload.ops(ledger(), 42, 60)
    assert workload.ops(ledger(), 42, 60) != workload.ops(ledger(), 43, 60)


def test_more_asks_continue_the_same_stream() -> None:
    assert asks(Stream().ops(ledger(), 42, 60)) == asks(Stream().ops(ledger(), 42, 200))[:60]


def test_tenants_ask_equally_often() -> None:
    assert set(Counter(q.tenant for q in asks(Stream().ops(ledger(), 3, 400))).values()) == {100}


def test_a_third_to_a_half_of_the_asks_are_word_for_word_repetitions() -> None:
    for seed in range(1, 11):
        found = asks(Stream().ops(ledger(), seed, 400))
        repeated = 1 - len({q.id for q in found}) / len(found)
        assert 0.35 <= repeated <= 0.55


def test_word_identical_questions_of_several_tenants_meet() -> None:
    by_text: dict[str, set[str]] = {}
    for q in asks(Stream().ops(ledger(), 42, 400)):
        by_text.setdefault(q.text, set()).add(q.tenant)
    assert sum(len(tenants) > 1 for tenants in by_text.values()) > 30


def test_session_ids_are_reused_across_tenants() -> None:
    sessions: dict[str, set[str]] = {}
    for q in asks(Stream(n_sessions=5).ops(ledger(), 42, 200)):
        sessions.setdefault(q.session, set()).add(q.tenant)
    assert sorted(sessions) == [f"t-{i:02d}" for i in range(5)]
    assert all(len(tenants) == 4 for tenants in sessions.values())


def test_sessions_ask_for_the_prompts_in_turn() -> None:
    asked = asks(Stream(n_sessions=5, prompts=("", "brief")).ops(ledger(), 42, 200))
    assert {(q.session, q.prompt) for q in asked} == {(f"t-{i:02d}", ("", "brief")[i % 2]) for i in range(5)}
    assert {q.prompt for q in asks(Stream().ops(ledger(), 42, 50))} == {""}


def test_only_questions_about_the_topics_are_asked() -> None:
    found = asks(Stream(about=("unit", "enum")).ops(ledger(), 42, 200))
    assert {ledger().topics[q.id] for q in found} == {"unit", "enum"}


def test_a_corpus_without_the_topics_is_asked_about_everything() -> None:
    assert asks(Stream(about=("no-such",)).ops(ledger(), 42, 50)) == asks(Stream().ops(ledger(), 42, 50))


def test_edits_are_ops_of_their_own_between_asks() -> None:
    ops = Stream(edits=("unit",)).ops(ledger(), 42, 200)
    edits = [op for op in ops if op.do == "upsert"]
    assert [op.item for op in edits] == [r.doc for r in ledger().revisions if r.drift == "unit"]
    assert [op.index for op in ops] == list(range(len(ops)))
    assert edits[0].index > 30
    assert edits[-1].index < len(ops) - 40


@pytest.mark.parametrize("kind", ALL_DRIFT)
def test_most_subjects_are_asked_before_and_after_an_edit_of_theirs(kind: str) -> None:
    ops = Stream(edits=(kind,), about=(kind,)).ops(ledger(), 42, 400)
    refs = {d.id: d.refs for d in ledger().docs}
    met = both = 0
    for op in ops:
        if not isinstance(op.item, Doc):
            continue
        hit = {r for r, needed in refs.items() if op.item.id in needed}
        times = [o.index for o in ops if isinstance(o.item, Query) and ledger().records[o.item.id] in hit]
        met += bool(times)
        both += any(t < op.index for t in times) and any(t > op.index for t in times)
    assert met == 24
    assert both >= 22


def test_under_a_limit_the_edits_are_those_that_most_asks_depend_on() -> None:
    def depending(workload: Stream) -> list[int]:
        ops = workload.ops(ledger(), 42, 400)
        refs = {d.id: (d.id, *d.refs) for d in ledger().docs}
        needs = Counter(doc for q in asks(ops) for doc in refs[ledger().records[q.id]])
        return [needs[op.item.id] for op in ops if isinstance(op.item, Doc)]

    some = depending(Stream(edits=ALL_DRIFT, max_edits=8))
    every = depending(Stream(edits=ALL_DRIFT))
    assert len(some) == 8
    assert min(some) >= sorted(every)[-17]  # every document has two edits; the first ones come first


def test_max_edits_of_zero_edits_nothing() -> None:
    assert Stream(edits=("*",), max_edits=0).ops(ledger(), 42, 50) == Stream().ops(ledger(), 42, 50)


def test_an_upgrade_comes_at_its_share_of_the_asks() -> None:
    ops = Stream(upgrade="lsa", upgrade_at=0.3).ops(ledger(), 42, 100)
    assert ops[31] == Op(31, 31.0, "upgrade", Upgrade("lsa"))
    assert sum(op.do == "ask" for op in ops[:31]) == 30


def test_a_removal_is_a_delete() -> None:
    docs = [Doc("a", "A."), Doc("b", "B.")]
    gone = Revision(Doc("b", "B.", version=2), "removed")
    corpus = answer_corpus(
        "x", docs, [Query("q", "A?")], {"q": {"a": 1}}, {}, subjects={"q": "s"}, revisions=(gone,)
    )  # fmt: skip
    ops = Stream(edits=("unit",)).ops(corpus, 1, 10)  # the set knows no unit: whatever it has
    assert [(op.do, op.item) for op in ops if op.do not in ("load", "ask")] == [("delete", gone.doc)]


def test_a_set_of_one_wording_and_no_tenants_is_asked_all_the_same() -> None:
    queries = [Query(f"q{i}", f"Question {i}?") for i in range(3)]
    corpus = answer_corpus(
        "x", [Doc("a", "A.")], queries, {q.id: {"a": 1} for q in queries}, {}, subjects={q.id: q.id for q in queries}
    )
    found = asks(Stream().ops(corpus, 5, 40))
    assert {q.id for q in found} == {"q0", "q1", "q2"}
    assert {q.tenant for q in found} == {""}


@pytest.mark.parametrize("n", [0, -1])
def test_a_run_without_asks_is_refused(n: int) -> None:
    with pytest.raises(InvalidInput, match=f"n_asks={n} must be >= 1"):
        Stream().ops(ledger(), 42, n)


def test_a_set_without_questions_is_refused() -> None:
    corpus = answer_corpus("empty", [Doc("a", "A.")], [], {}, {}, subjects={})
    with pytest.raises(InvalidInput, match="data set 'empty' has no questions"):
        Stream().ops(corpus, 42, 5)


# --- the parts


def test_zipf_by_hand() -> None:
    rng, law = stream(1, "zipf"), Zipf(3, 1.0)
    count = Counter(law.draw(rng) for _ in range(11_000))
    assert [round(count[rank] / 1000) for rank in range(3)] == [6, 3, 2]  # 1 : 1/2 : 1/3 = 6 : 3 : 2 elevenths


def test_zipf_with_exponent_zero_is_uniform() -> None:
    rng, law = stream(1, "zipf"), Zipf(4, 0.0)
    count = Counter(law.draw(rng) for _ in range(8000))
    assert all(abs(n - 2000) < 150 for n in count.values())


def test_every_round_holds_every_tenant_once() -> None:
    turns = interleave(["a", "b", "c"], 10, stream(1, "turns"))
    assert len(turns) == 10
    assert all(set(turns[i : i + 3]) == {"a", "b", "c"} for i in (0, 3, 6))


def test_edits_are_spread_over_the_middle() -> None:
    assert positions(1, 100) == [48]
    assert positions(3, 100) == [20, 48, 75]
    assert positions(0, 100) == []


@pytest.mark.parametrize("n_asks", [1, 2, 3, 7])
def test_no_edit_and_no_upgrade_is_lost_in_a_short_stream(n_asks: int) -> None:
    ops = Stream(edits=("*",), upgrade="lsa", upgrade_at=1.0).ops(ledger(), 42, n_asks)
    assert Counter(op.do for op in ops) == {
        "load": 1, "ask": n_asks, "upgrade": 1, "upsert": len(ledger().revisions),
    }  # fmt: skip
    assert ops[-1].do == "ask"


def test_no_kinds_choose_nothing_and_a_star_chooses_all() -> None:
    assert choose(ledger(), (), None, []) == []
    assert choose(ledger(), ("*",), None, []) == list(ledger().revisions)


@pytest.mark.parametrize("broken", [Stream(prompts=()), Stream(n_sessions=0)])
def test_a_stream_that_nobody_could_ask_is_refused(broken: Stream) -> None:
    with pytest.raises(InvalidInput, match=r"prompts=.* must not be empty, n_sessions="):
        broken.ops(ledger(), 42, 10)
