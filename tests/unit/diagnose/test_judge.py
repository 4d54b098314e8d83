from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from testbed.core.errors import BrokenContract
from testbed.core.scenario import Expect
from testbed.diagnose.judge import ArmJudgement, judge_arm, judge_run, metric_on
from tests.histories.trace import DictStack

TENANT = frozenset({"tenant"})
EXPECT = Expect("MRR@5", 0.2, "answer", ("tenant-key",), ("no-cross-tenant",))
LAYERS = ("answer", "retrieval")


def arm(name: str, drop: Mapping[str, frozenset[str]] | None = None, n: int = 80, bypass: str = "") -> ArmJudgement:
    stack = DictStack(["acme", "birch", "cedar"], drop)
    for i in range(n):
        stack.ask(stack.tenants[i * 7 % 3], f"what is {i * i % 11}?")
        if bypass:
            stack.lose(bypass)
        if i % 20 == 19:
            stack.upsert(stack.tenants[i % 3])
    return judge_arm(stack.evidence(name), [(1, "answer", "miss", 1000), (1, "stack", "ask", 2000)])


LEAK = {"answer": TENANT}


def run() -> dict[str, ArmJudgement]:
    return {
        "clean": arm("clean"),
        "faulty": arm("faulty", LEAK),
        "faulty+tenant-key": arm("faulty+tenant-key"),
        "clean+tenant-key": arm("clean+tenant-key", bypass="retrieval"),
        "faulty-without:answer": arm("faulty-without:answer", LEAK, bypass="answer"),
        "faulty-without:retrieval": arm("faulty-without:retrieval", LEAK, bypass="retrieval"),
    }


def test_a_run_names_the_layer_the_cure_and_the_write_and_read() -> None:
    found = judge_run(run(), EXPECT, LAYERS, seed=42)
    assert found.failures == ()
    assert [(b.layer, b.share) for b in found.blames] == [("answer", 1.0), ("retrieval", 0.0)]
    (fixed,) = found.fixes
    assert (fixed.fix, fixed.recovered.share, fixed.metric_lost, fixed.violates) == ("tenant-key", 1.0, 0.0, ())
    assert fixed.hit_rate_lost is not None
    assert fixed.hit_rate_lost["answer"] == 0.0
    assert found.violated == "no-cross-tenant"
    assert found.witness is not None
    assert len(found.witness.ops) == 2
    assert found.deltas["faulty"]["MRR@5"].interval.high < 0
    assert found.deltas["faulty-without:answer"]["MRR@5"].interval == (0.0, 0.0, 0.0)


def test_the_heatmap_shows_the_layers_that_were_asked() -> None:
    heat = judge_run(run(), EXPECT, LAYERS, n_windows=8).heat
    assert heat is not None
    assert heat.layers == ("answer", "retrieval", "embedding", "text")
    assert len(heat.delta) == len(heat.hits["answer"]) == 8
    hits, valid = sum(heat.hits["answer"]), sum(heat.valid_hits["answer"])
    assert valid < hits


def test_the_pollution_of_the_faulty_arm_is_told_over_time() -> None:
    found = judge_run(run(), EXPECT, LAYERS, n_windows=8).pollution
    assert found is not None
    assert list(found.poisoned) == sorted(found.poisoned)
    assert found.poisoned[-1] > 0
    assert found.first_bad_s is not None
    assert found.time_to_detect_s is not None
    assert sum(map(sum, zip(*found.outcomes["answer"].values(), strict=True))) == 80


def test_the_json_has_no_nan_and_counts_what_is_unscored() -> None:
    found = judge_run(run(), EXPECT, LAYERS).to_json()
    text = json.dumps(found, allow_nan=False, sort_keys=True)
    assert json.loads(text) == found
    clean = found["arms"]["clean"]
    assert clean["means"]["answer-containment"] is None
    assert clean["unscored"]["answer-containment"] == clean["asks"] == 80
    assert clean["serving"]["stack"]["p95_ms"] == 0.002
    assert clean["serving"]["stack"]["hit_rate"] is None
    assert clean["quadrants"] is None


def test_the_same_evidence_is_judged_the_same() -> None:
    assert judge_run(run(), EXPECT, LAYERS, seed=7).to_json() == judge_run(run(), EXPECT, LAYERS, seed=7).to_json()


def test_where_truth_cannot_be_scored_the_judgement_says_what_stands_in_for_it() -> None:
    found = judge_run(run(), replace(EXPECT, metric="true"), LAYERS)
    assert (found.metric, found.failures) == ("MRR@5", ())  # no accepted strings either
    assert judge_run(run(), replace(EXPECT, metric="nDCG@5"), LAYERS).metric == "nDCG@5"
    assert metric_on("true", None) == "true"
    accepted = replace(arm("clean"), means={"MRR@5": 1.0, "answer-containment": 0.9})
    assert metric_on("true", accepted) == "answer-containment"


def test_arms_that_are_missing_are_said_not_guessed() -> None:
    found = judge_run({"clean": arm("clean")}, EXPECT, LAYERS)
    assert found.failures == ("faulty: does not violate no-cross-tenant", "faulty: has no MRR@5")
    assert (found.heat, found.pollution, found.witness, found.blames) == (None, None, None, ())


def test_arms_of_different_ops_are_not_compared() -> None:
    with pytest.raises(BrokenContract, match="did not play the same ops"):
        judge_run({"clean": arm("clean"), "faulty": arm("faulty", LEAK, n=10)}, EXPECT, LAYERS)


def test_the_hit_rate_of_a_layer_can_be_what_a_scenario_is_about() -> None:
    arms = run()
    arms["faulty"] = arm("faulty", bypass="answer")
    found = judge_run(arms, replace(EXPECT, metric="valid hits[answer]", blame="", violates=()), ("answer",))
    means = {name: a.means["valid hits[answer]"] for name, a in found.arms.items()}
    answer = found.arms["clean"].layer("answer")
    assert answer is not None and means["clean"] == answer.valid_hit_rate > 0.2
    assert means["faulty"] == means["faulty-without:answer"] == 0.0
    assert found.failures == ()
    assert found.fixes[0].recovered.share == 1.0
    assert "valid hits[answer]" not in arms["clean"].means  # made for this judgement, and for no other


def test_how_late_answers_are_can_be_what_a_scenario_is_about() -> None:
    arms = run()
    arms["faulty"] = arm("faulty", {"answer": frozenset({"epoch"})})
    found = judge_run(arms, replace(EXPECT, metric="behind > 5 s"), LAYERS)
    late = {name: found.arms[name].means["behind > 5 s"] for name in ("clean", "faulty")}
    assert late["clean"] == 0.0 < late["faulty"]
    behind = [s.behind_s for s in found.arms["faulty"].scores]
    assert late["faulty"] == sum(b > 5 for b in behind) / len(behind)
    assert judge_run(arms, replace(EXPECT, metric="behind > 500 s"), LAYERS).arms["faulty"].means["behind > 500 s"] == 0
