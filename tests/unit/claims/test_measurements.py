"""The figures of each claim, on inputs small enough to do by hand."""

from __future__ import annotations

import json
import math

import httpx
import numpy as np
import pytest

from testbed.caches.freshness import Case, Entry, LlmJudge, Ttl, score
from testbed.caches.keys import published_after, published_before
from testbed.claims import c1_eviction as c1
from testbed.claims import c2_signature as c2
from testbed.claims import c3_key_fix as c3
from testbed.claims import c4_two_levels as c4
from testbed.claims import c5_dual_stack as c5
from testbed.claims import c6_freshness_judge as c6
from testbed.claims import c8_version_in_key as c8
from testbed.claims import c9_tenant_context as c9
from testbed.claims import c10_joint_attribution as c10
from testbed.claims import data
from testbed.claims.data import Pair
from testbed.claims.pairs import PAIRS, TEXTS
from testbed.core.errors import InvalidInput, Unavailable
from testbed.models.llm import LlmClient


def test_c1_readings_of_the_long_tail_count_other_keys():
    keys = [0] * 5 + [1] * 3 + [2] * 2 + [3]
    assert c1.subset("rarest 1000 that recur", keys) == {0, 1, 2}
    assert c1.subset("the 1000 most asked", keys) == {0, 1, 2, 3}
    assert c1.subset("beyond the 1000 most asked", keys) == frozenset()
    many = [*range(1500), 0]
    assert c1.subset("beyond the 1000 most asked", many) == set(range(1000, 1500))


def test_c1_share_counts_the_requests_of_the_subset_only():
    assert c1.share(bytes([1, 0, 1, 1]), [7, 7, 8, 9], {7, 8}) == pytest.approx(2 / 3)
    assert math.isnan(c1.share(bytes([1]), [7], set()))


def test_c1_limit_gives_the_whole_cache_to_the_subset():
    assert c1.best(1, [1, 2, 1, 2, 1], {1}) == pytest.approx(2 / 3)


def test_c1_decay_is_relative_to_the_mean_of_the_warm_part():
    flags = bytes([0] * 10 + [1] * 10 + [0] * 5 + [1] * 5)
    assert c1.decay_p95(flags, window=5) == pytest.approx(1.0)
    assert c1.decay_p95(bytes([1] * 30), window=5) == 0.0


def test_c1_a_row_matches_only_with_all_three_figures():
    cell = {"lru": [0.40, 0.42], "lfu": [0.385], "hybrid(access)": [0.63]}
    assert c1.matches(cell, "hybrid(access)")
    assert not c1.matches(cell | {"hybrid(access)": [0.60]}, "hybrid(access)")
    assert c1.gain({"lru": [0.4], "lfu": [0.5], "h": [0.45]}, "h") == [pytest.approx(-0.05)]


def test_c2_bits_are_the_entropy_of_what_was_seen():
    assert c2.bits(["a", "b", "c", "d"]) == pytest.approx(2.0)
    assert c2.bits(["a"] * 5) == 0.0


def test_c2_salted_hits_are_those_within_one_second():
    slow = c2.hit_rates(1, 0.001, 200)
    assert slow.salted == 0.0 and slow.plain > 0.3
    fast = c2.hit_rates(1, 1e9, 200)
    assert fast.salted == fast.plain == fast.most


def test_c3_collisions_are_counted_per_array():
    a, b = np.zeros(20, np.float32), np.zeros(20, np.float32)
    b[19] = 1
    c = np.ones(20, np.float32)
    assert c3.in_collision(published_after, [a, b, c]) == pytest.approx(2 / 3)
    assert c3.in_collision(published_before, [a, b, c]) == 0.0


def test_c3_a_refusal_is_neither_the_same_key_nor_another():
    v = np.ones(4, np.float32) / 3
    row = c3.same_key(c3.robust, [(v, v.astype(np.float64)), (v, v.astype(np.float16))])
    assert row == {"same key": 0.5, "another key": 0.0, "refused": 0.5}


def test_c4_shares_are_apart_for_both_kinds_of_pairs():
    pairs = [Pair("a", "b", True, ""), Pair("a", "c", True, ""), Pair("a", "d", False, "")]
    assert c4.merged(pairs, lambda i: i != 1) == (0.5, 1.0)


def test_c4_score_interval_is_wilsons():
    found = c4.wilson("x", 0.5, 10)
    assert (found.low, found.high) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))


def test_c4_score_interval_of_none_and_of_all_stays_a_share():
    assert c4.wilson("x", 0.0, 35).low == 0.0 and c4.wilson("x", 1.0, 35).high == 1.0


def test_own_pairs_are_distinct_questions_of_every_kind():
    kinds = {pair.kind for pair in PAIRS}
    assert {"negation", "number", "entity", "unit", "role swap", "date", "quantifier"} <= kinds
    assert all(pair.first != pair.second for pair in PAIRS)
    assert len({frozenset((p.first, p.second)) for p in PAIRS}) == len(PAIRS)
    assert len(TEXTS) >= 100


def test_public_pairs_are_read_and_a_broken_file_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_SHARED_DATA", str(tmp_path))
    assert data.public_pairs("eol_pairs", 3) == []
    (tmp_path / "eol_pairs").mkdir()
    file = tmp_path / "eol_pairs" / "pairs.jsonl"
    file.write_text('{"q1": "a", "q2": "b", "label": 0, "pair_type": "other_product"}\n' * 2)
    assert data.public_pairs("eol_pairs", 1) == [Pair("a", "b", False, "other_product")]
    file.write_text('{"q1": "a"}\n')
    with pytest.raises(InvalidInput, match="label"):
        data.public_pairs("eol_pairs", 1)


def test_c5_one_rate_gives_both_published_rows():
    rate = c5.rate_for(0.0183, 3.2)
    assert c5.mismatch(rate, 3.2) == pytest.approx(0.0183)
    assert c5.mismatch(rate, 0.042) == pytest.approx(0.000242, abs=1e-6)


def test_c5_simulation_agrees_with_the_arithmetic():
    assert c5.simulated(1, 0.01, 50.0, c5.Scale((1,), 50, 20_000)) == pytest.approx(c5.mismatch(0.01, 50.0), abs=0.02)


def case(age_s, rate_per_h, stale):
    return Case(Entry("k", 0.0, 0.0, {"d": 1}, "price", rate_per_h), age_s, stale)


def test_c6_best_guess_knows_the_rate():
    guess = c6.BestGuess(0.5)
    assert guess.judge(case(3600, 0.5, False).entry, 3600).fresh  # 1 - exp(-0.5) = 0.39
    assert not guess.judge(case(3600, 1.0, False).entry, 3600).fresh  # 0.63


def test_c6_limit_is_the_step_curve_of_the_likelihood_ratio():
    cases = [case(3600, r, s) for r, s in [(4, True), (3, False), (2, True), (1, False)] for _ in range(100)]
    limit = c6.roc_limit(cases)
    slack = 1.5 / math.sqrt(200)
    assert limit(0.0) == pytest.approx(0.5 + slack)
    assert limit(0.5) == 1.0
    assert c6.youden(score(Ttl(1), cases)) == 0.0


def test_c6_world_is_seeded_and_knows_its_truth():
    one, other = c6.world(1, 200), c6.world(1, 200)
    assert one == other != c6.world(2, 200)
    assert all((one.versions[next(iter(c.entry.sources))] > 1) == c.is_stale for c in one.cases)


def test_c6_judge_is_measured_over_a_real_client(monkeypatch):
    """A deterministic endpoint that follows the rate it is shown: between a fixed lifetime and the limit."""

    def answer(request):
        prompt = json.loads(request.content)["messages"][1]["content"]
        rate = float(prompt.split("change rate: ")[1].split(" ")[0])
        said = json.dumps({"fresh": rate < 0.5, "reason": "rate"}) if rate < 5 else "it depends"
        choice = {"message": {"content": said}, "finish_reason": "stop"}
        return httpx.Response(200, json={"choices": [choice], "usage": {}})

    def client(url, model, **kwargs):
        return LlmClient(url, model, transport=httpx.MockTransport(answer))

    monkeypatch.setenv("TESTBED_JUDGE_URL", "http://judge.invalid/v1")
    monkeypatch.setenv("TESTBED_JUDGE_MODEL", "m")
    monkeypatch.setattr(c6, "LlmClient", client)
    (row,), timings = c6.judged(c6.Scale((1,), 10, 300))
    assert 0.6 < row["recall"] <= 1.0 and row["false stale"] < 0.6
    assert row["asked"] == 300 and row["failed"] > 0
    assert timings["judge ms"] > 0


def test_c6_without_an_endpoint_there_is_no_judge(monkeypatch):
    monkeypatch.delenv("TESTBED_JUDGE_URL", raising=False)
    assert c6.judged(c6.SCALES["small"]) == ([], {})


def test_c6_an_unreachable_endpoint_fails_closed():
    def refuse(request):
        raise httpx.ConnectError("refused")

    with LlmClient("http://judge.invalid/v1", "m", transport=httpx.MockTransport(refuse)) as client:
        judge = LlmJudge(client, "m")
        assert not judge.judge(Entry("k", 0, 0), 10).fresh
        assert judge.n_failed == 1


def test_c6_an_endpoint_that_answers_nothing_is_not_measured_as_a_judge(monkeypatch):
    """A judge fails closed: what never answered would be told as one that calls every entry stale."""
    monkeypatch.setenv("TESTBED_JUDGE_URL", "http://me:secret@127.0.0.1:9/v1")
    monkeypatch.setenv("TESTBED_JUDGE_MODEL", "m")
    said = r"answered none of 20 questions: .*http://127.0.0.1:9/v1 is not reachable.*unset TESTBED_JUDGE_URL"
    with pytest.raises(Unavailable, match=said) as caught:
        c6.judged(c6.Scale((1,), 10, 20))
    assert "secret" not in str(caught.value)


def test_c8_mrr_by_hand_and_ties_by_position():
    docs = np.eye(3, dtype=np.float32)
    assert c8.mrr(docs, docs) == 1.0
    assert c8.mrr(docs, docs[[1, 0, 2]]) == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert c8.mrr(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)) == pytest.approx((1 + 1 / 2) / 2)
    far = np.tile(np.arange(8, dtype=np.float32)[::-1, None], (1, 1))
    assert c8.mrr(far, np.ones((8, 1), np.float32)) == pytest.approx(sum(1 / r for r in range(1, 6)) / 8)


def test_c8_a_number_notices_what_somebody_raises_it_for():
    rows = c8.detection()
    assert len(rows) == 16
    assert c8.caught(rows, "number notices", raised=True) == "7/7"
    assert c8.caught(rows, "number notices", raised=False) == "0/7"
    assert c8.caught(rows, "manifest notices", raised=False) == "7/7"
    (idle,) = [r for r in rows if r["changed"] == "nothing" and r["number raised"]]
    assert idle["number notices"] and not idle["manifest notices"]


def test_c9_joined_names_meet_and_typed_ones_do_not():
    assert [row["meet"] for row in c9.separator()] == [True, False]


def test_c9_interleaved_requests_cross_in_what_they_share():
    wrong = {row["context"]: row["read another tenant"] for row in c9.tasks(200, 1)}
    assert wrong["one shared variable"] > 0.3 and wrong["by trace id"] > 0.1
    assert wrong["by tenant|trace"] == wrong["context variable, typed"] == 0.0


def test_c10_a_clean_chain_is_always_right_and_a_bypassed_fault_is_cured():
    plan = c10.steps(1, 600)
    assert c10.replay(plan, "", "").right.all()
    for guilty in c10.LAYERS:
        assert not c10.replay(plan, guilty, "").right.all()
        assert c10.replay(plan, guilty, guilty).right.all()


def test_c10_a_layer_is_asked_only_after_a_miss_above():
    arm = c10.replay(c10.steps(1, 300), "", "")
    assert np.array_equal(np.isnan(arm.hits["retrieval"]), arm.hits["answer"] == 1)
    assert np.isnan(c10.replay(c10.steps(1, 10), "", "answer").hits["answer"]).all()
