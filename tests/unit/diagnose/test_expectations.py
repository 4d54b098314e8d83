from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed.core.scenario import Expect
from testbed.diagnose.expectations import check_expect, recovered

EXPECT = Expect("true", 0.2, "answer", ("tenant-key",), ("no-cross-tenant",))
LAYERS = ("answer", "text")
GOOD = {
    "clean": 0.9,
    "faulty": 0.5,
    "faulty+tenant-key": 0.9,
    "faulty-without:answer": 0.89,
    "faulty-without:text": 0.6,
}
VERDICTS: dict[str, dict[str, bool | None]] = {
    "clean": {"no-cross-tenant": True, "freshness": None},
    "faulty": {"no-cross-tenant": False},
}


def failures(expect: Expect = EXPECT, verdicts: Any = VERDICTS, **scores: float | None) -> list[str]:
    changed = {**GOOD, **scores}
    return check_expect(expect, {arm: v for arm, v in changed.items() if v is not None}, verdicts, LAYERS)


def test_a_live_scenario_has_no_failures() -> None:
    assert failures() == []


def test_a_fault_that_does_not_bite_is_a_failure() -> None:
    assert failures(faulty=0.8)[0] == "faulty: true fell by 0.1000, expected at least 0.2000"
    assert failures(faulty=0.9) == ["faulty: true fell by 0.0000, expected at least 0.2000"]
    assert len(failures(replace(EXPECT, drop_at_least=0.0), faulty=0.9)) == 1


def test_the_drop_may_be_exactly_as_small_as_stated() -> None:
    assert failures(replace(EXPECT, drop_at_least=0.4)) == []


def test_a_fix_that_does_not_cure_is_a_failure() -> None:
    changed = {**GOOD, "faulty+tenant-key": 0.87}
    assert check_expect(EXPECT, changed, VERDICTS, LAYERS) == [
        "faulty+tenant-key: recovered 92% of the drop, expected at least 93%"
    ]


def test_a_fix_need_not_give_back_what_doing_without_the_layer_does_not() -> None:
    """The clean stack's cache repeats right answers that retrieval would have failed; that is not the fault's."""
    scores = {**GOOD, "faulty-without:answer": 0.86, "faulty+tenant-key": 0.86}
    assert check_expect(EXPECT, scores, VERDICTS, LAYERS) == []
    assert check_expect(EXPECT, {**scores, "faulty+tenant-key": 0.84}, VERDICTS, LAYERS) == [
        "faulty+tenant-key: recovered 85% of the drop, expected at least 86%"
    ]
    nothing = {**scores, "faulty-without:answer": 0.45, "faulty+tenant-key": 0.5}
    assert "faulty+tenant-key: recovered 0% of the drop, expected at least 81%" in check_expect(
        EXPECT, nothing, VERDICTS, LAYERS
    )
    better = {**scores, "faulty-without:answer": 0.95, "faulty+tenant-key": 0.88}
    assert check_expect(EXPECT, better, VERDICTS, LAYERS) == []


def test_a_fix_that_did_not_run_is_a_failure() -> None:
    left = {arm: v for arm, v in GOOD.items() if arm != "faulty+tenant-key"}
    assert check_expect(EXPECT, left, VERDICTS, LAYERS) == ["faulty+tenant-key: did not run, or has no true"]


def test_bypassing_the_layer_to_blame_must_cure() -> None:
    changed = {**GOOD, "faulty-without:answer": 0.7}
    assert "faulty-without:answer: recovered 50% of the drop, but the layer to blame" in _one(changed)


def test_bypassing_another_layer_must_not_cure() -> None:
    changed = {**GOOD, "faulty-without:text": 0.7}
    assert _one(changed) == "faulty-without:text: recovered 50% of the drop, but answer is to blame"


def test_where_no_layer_is_to_blame_no_bypass_may_cure() -> None:
    (found,) = check_expect(replace(EXPECT, blame=""), {**GOOD, "faulty-without:answer": 0.9}, VERDICTS, LAYERS)
    assert found == "faulty-without:answer: recovered 100% of the drop, but no layer is to blame"


def test_blame_of_a_layer_that_was_never_bypassed_cannot_be_told() -> None:
    found = check_expect(replace(EXPECT, blame="index"), {**GOOD, "faulty-without:answer": 0.5}, VERDICTS, LAYERS)
    assert found == ["faulty-without:index: did not run, or has no true"]


def test_a_clean_arm_that_violates_anything_is_a_failure() -> None:
    verdicts = {**VERDICTS, "clean": {"lineage": False}}
    assert failures(verdicts=verdicts) == ["clean: violates lineage"]


@pytest.mark.parametrize("verdict", [True, None])
def test_an_expected_violation_that_is_not_seen_is_a_failure(verdict: bool | None) -> None:
    verdicts = {**VERDICTS, "faulty": {"no-cross-tenant": verdict}}
    assert failures(verdicts=verdicts) == ["faulty: does not violate no-cross-tenant"]


def test_without_a_score_there_is_nothing_to_compare() -> None:
    assert failures(clean=float("nan")) == ["clean: has no true"]
    assert failures(faulty=None) == ["faulty: has no true"]


def test_of_a_rate_less_is_better() -> None:
    assert recovered("leak rate", 0.0, 0.4, 0.1) == pytest.approx(0.75)
    assert recovered("true", 0.5, 0.5, 0.5) is None


def _one(scores: dict[str, float]) -> str:
    (found,) = check_expect(EXPECT, scores, VERDICTS, LAYERS)
    return found


JOINT = replace(EXPECT, blame="answer+text")


def test_two_layers_are_to_blame_when_only_both_together_cure() -> None:
    both = {"faulty-without:answer+text": 0.9}
    layers = (*LAYERS, "answer+text")
    assert check_expect(JOINT, {**GOOD, **both, "faulty-without:answer": 0.75}, VERDICTS, layers) == []


def test_one_of_two_layers_to_blame_must_not_cure_alone() -> None:
    scores = {**GOOD, "faulty-without:answer+text": 0.9, "faulty-without:answer": 0.9}
    assert check_expect(JOINT, scores, VERDICTS, (*LAYERS, "answer+text")) == [
        "faulty-without:answer: recovered 100% of the drop, but answer+text is to blame"
    ]


def test_lateness_is_better_when_there_is_less_of_it() -> None:
    late = Expect("behind > 60 s", 0.2, "answer", ("tenant-key",))
    scores = {arm: 1 - value for arm, value in GOOD.items()}
    assert check_expect(late, scores, VERDICTS, LAYERS) == []


def test_what_chance_explains_breaks_no_promise() -> None:
    """A drop of 0.40 with a fix that gives back 0.35 of it: chance, where either may be 0.02 more or less."""
    scores = {**GOOD, "faulty+tenant-key": 0.85}
    chance = {arm: (0.02, 0.02) for arm in scores}
    assert check_expect(EXPECT, scores, VERDICTS, LAYERS, chance) == []
    assert check_expect(EXPECT, scores, VERDICTS, LAYERS, {arm: (0.005, 0.005) for arm in scores}) == [
        "faulty+tenant-key: recovered 87% of the drop, expected at least 92%"
    ]


def test_a_promise_is_broken_where_chance_does_not_explain_it() -> None:
    chance = {arm: (0.03, 0.03) for arm in GOOD}
    assert check_expect(EXPECT, {**GOOD, "faulty": 0.8}, VERDICTS, LAYERS, chance)[0].startswith(
        "faulty: true fell by 0.1"
    )
    assert check_expect(EXPECT, {**GOOD, "faulty": 0.72}, VERDICTS, LAYERS, chance) == []
    wrong = {**GOOD, "faulty-without:text": 0.8}
    assert check_expect(EXPECT, wrong, VERDICTS, LAYERS, chance) == [
        "faulty-without:text: recovered 75% of the drop, but answer is to blame"
    ]
    nearly = {**GOOD, "faulty-without:text": 0.71}
    assert check_expect(EXPECT, nearly, VERDICTS, LAYERS) and not check_expect(EXPECT, nearly, VERDICTS, LAYERS, chance)


def test_of_a_drop_that_may_be_none_no_share_can_be_told() -> None:
    scores = {**GOOD, "faulty": 0.88, "faulty+tenant-key": 0.88, "faulty-without:text": 0.9}
    expect = replace(EXPECT, drop_at_least=0.01)
    assert check_expect(expect, scores, VERDICTS, LAYERS, {"faulty": (0.03, 0.03)}) == []
    assert len(check_expect(expect, scores, VERDICTS, LAYERS)) == 3
