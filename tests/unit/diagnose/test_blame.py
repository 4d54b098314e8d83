from __future__ import annotations

import numpy as np
import pytest

from testbed.core.errors import InvalidInput
from testbed.diagnose.blame import Blame, Repair, counterfactual, sampled_shapley, shapley, smallest_repair

NAN = float("nan")


def arm(*values: float, repeat: int = 20) -> np.ndarray:
    return np.array(values * repeat, dtype=float)


def test_blame_is_the_share_of_the_drop_that_goes_away() -> None:
    found = counterfactual(
        arm(1, 1, 1, 1), arm(1, 0, 0, 0), {"text": arm(1, 0, 0, 0), "answer": arm(1, 1, 1, 0)}, seed=1
    )
    assert [(b.layer, b.share) for b in found] == [("answer", pytest.approx(2 / 3)), ("text", 0.0)]
    assert found[0].low <= 2 / 3 <= found[0].high


def test_a_bypass_that_makes_it_worse_has_negative_blame() -> None:
    (found,) = counterfactual(arm(1, 1, 1, 1), arm(1, 1, 0, 0), {"text": arm(1, 0, 0, 0)}, seed=1)
    assert found.share == pytest.approx(-0.5)


def test_less_of_a_rate_is_better_when_the_sign_says_so() -> None:
    (found,) = counterfactual(arm(0, 0), arm(0, 1), {"answer": arm(0, 0)}, seed=1, sign=-1)
    assert found.share == 1.0


@pytest.mark.parametrize("faulty", [arm(1, 1), arm(1, 1.001), arm(1, 0.999)])
def test_there_is_no_blame_without_a_clear_drop(faulty: np.ndarray) -> None:
    (found,) = counterfactual(arm(1, 1), faulty, {"answer": arm(1, 1)}, seed=1)
    assert found.share is None
    assert "not clearly above 0" in found.why


def test_one_bad_ask_among_many_is_no_clear_drop() -> None:
    faulty = np.ones(100)
    faulty[3] = 0.0
    answer, text = counterfactual(np.ones(100), faulty, {"text": faulty, "answer": np.ones(100)}, seed=1)
    assert answer.share is None and text.share is None
    assert [(b.layer, b.worse, b.mended) for b in (answer, text)] == [("answer", 1, 1), ("text", 1, 0)]


def test_an_ask_that_is_only_a_little_better_is_not_mended() -> None:
    (found,) = counterfactual(arm(1, 1), arm(1, 0.2), {"answer": arm(0, 0.5)}, seed=1)
    assert (found.worse, found.mended) == (20, 0)


def test_asks_that_one_arm_leaves_unscored_are_left_out_of_all() -> None:
    (found,) = counterfactual(arm(1, 1, NAN), arm(0, 1, 0), {"answer": arm(1, NAN, 1)}, seed=1)
    assert found.share == 1.0
    (found,) = counterfactual(arm(NAN), arm(0), {"answer": arm(1)}, seed=1)
    assert found == Blame("answer", None, pytest.approx(NAN, nan_ok=True), pytest.approx(NAN, nan_ok=True), found.why)


def test_two_layers_that_mask_each_other_share_the_blame() -> None:
    """Bypassing either one changes nothing, because the other still serves the fault."""
    none, one, two = frozenset[str](), frozenset({"answer"}), frozenset({"retrieval"})
    values = {none: 0.2, one: 0.2, two: 0.2, one | two: 1.0}
    assert shapley(values, ["answer", "retrieval"]) == pytest.approx({"answer": 0.4, "retrieval": 0.4})


def test_shares_by_hand() -> None:
    values = {frozenset(k): v for k, v in {"": 0.0, "a": 0.6, "b": 0.1, "ab": 1.0}.items()}
    assert shapley(values, "ab") == pytest.approx({"a": (0.6 + 0.9) / 2, "b": (0.1 + 0.4) / 2})


def test_a_missing_subset_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"without \['a', 'b'\]; shapley needs all 2\^2"):
        shapley({frozenset(): 0.0, frozenset("a"): 1.0, frozenset("b"): 1.0}, "ab")
    with pytest.raises(InvalidInput, match="distinct"):
        shapley({}, "aa")


def test_sampling_asks_for_each_subset_once() -> None:
    asked: list[frozenset[str]] = []

    def score(subset: frozenset[str]) -> float:
        asked.append(subset)
        return float(len(subset))

    found = sampled_shapley(score, "abcdef", seed=1, pairs=20)
    assert len(asked) == len(set(asked))
    assert all(s.share == pytest.approx(1.0) and s.error == pytest.approx(0.0) for s in found.values())


def by_set(**values: list[float]) -> dict[frozenset[str], np.ndarray]:
    """By the initials of the layers that are left out: ``none`` is the faulty arm."""
    return {frozenset("" if name == "none" else name): np.array(v) for name, v in values.items()}


def test_the_smallest_repair_has_every_layer_that_is_needed_and_no_other() -> None:
    clean = np.ones(4)
    found = by_set(none=[0, 0, 0, 1], a=[1, 1, 0, 1], b=[0, 0, 1, 1], c=[0, 0, 0, 1])
    found |= by_set(ab=[1, 1, 1, 1], ac=[1, 1, 0, 1], bc=[0, 0, 1, 1], abc=[1, 1, 1, 1])
    assert smallest_repair(clean, found, "abc") == Repair(("a", "b"), 3, 0)


def test_a_bypass_that_costs_an_ask_of_its_own_still_repairs() -> None:
    found = by_set(none=[0, 0, 0, 1], a=[1, 1, 1, 0.5], b=[0, 0, 0, 1], ab=[1, 1, 1, 0.5])
    assert smallest_repair(np.ones(4), found, "ab") == Repair(("a",), 3, 1)


def test_of_repairs_that_leave_equally_many_the_better_one_counts_and_nothing_needs_none() -> None:
    clean = np.array([1.0, 0.5])
    assert smallest_repair(clean, by_set(none=[0, 0.5], a=[1, 0.5], b=[1, 1], ab=[1, 1]), "ab").layers == ("b",)
    assert smallest_repair(clean, by_set(none=[1, 0.5], a=[1, 1], b=[1, 0.5], ab=[1, 1]), "ab") == Repair((), 0, 0)


def test_worse_asks_are_counted_alike_for_layers_that_are_scored_at_different_ones() -> None:
    clean, faulty = arm(1, 1, 1, 1), arm(1, 1, 0, 0)
    found = counterfactual(clean, faulty, {"text": arm(1, 1, 0, NAN), "answer": arm(NAN, 1, 1, 1)}, seed=1)
    assert [(b.layer, b.worse, b.mended) for b in found] == [("answer", 40, 40), ("text", 40, 0)]
