"""Shapley shares of a whole run, on scores written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.core import coalitions
from testbed.core.scenario import Arm, Expect, Variant, without
from testbed.diagnose import shares

LAYERS = ("answer", "retrieval", "text")


@dataclass(frozen=True)
class Scored:
    op: int
    right: float

    def value(self, metric: str) -> float:
        return self.right


def variant(blame: str = "answer+retrieval") -> Variant:
    return Variant("v", "", (), (), None, Expect("true", 0.1, blame, ()))  # type: ignore[arg-type]


def measured(
    score: Any, layers: tuple[str, ...] = LAYERS, n: int = 40, drop: tuple[str, ...] = (), order: int = 1
) -> dict[str, Any]:
    """``score(bypassed, ask)``; ``drop`` are arms that did not run, ``order`` -1 plays them the other way round."""
    arms: list[Arm] = [Arm("clean")]
    arms += [without(variant(), [layer]) for layer in layers]
    sets = [[x for x in layers if x in s] for s in coalitions.needed(layers, seed=1)]
    arms += [without(variant(), s) for s in sets if len(s) != 1]
    judged = {
        arm.name: SimpleNamespace(
            scores=[Scored(i, 1.0 if arm.name == "clean" else score(set(arm.bypass), i)) for i in range(n)]
        )
        for arm in arms
        if arm.name not in drop
    }
    plan = SimpleNamespace(arms=arms[::order], layers=layers, variant=variant(), settings=SimpleNamespace(seed=1))
    return shares.measured(judged, plan, "true")  # type: ignore[arg-type]


def hidden(bypassed: set[str], ask: int) -> float:
    """Two faults in a row: an ask is right once both are bypassed, and a half once the outer one is."""
    if ask % 2:
        return 1.0
    return 1.0 if {"answer", "retrieval"} <= bypassed else 0.5 if "answer" in bypassed else 0.0


def test_layers_that_hide_one_another_share_the_drop_to_the_last_digit() -> None:
    found = measured(hidden)
    assert found["repair"] == {"layers": ("answer", "retrieval"), "worse": 20, "left": 0}
    told = {s["layer"]: s["share"] for s in found["shares"]}
    assert found["drop"] == 0.5 and found["exact"]
    assert told == {"answer": pytest.approx(0.375), "retrieval": pytest.approx(0.125), "text": pytest.approx(0.0)}
    assert sum(told.values()) + found["rest"] == pytest.approx(found["drop"], abs=1e-9)
    assert [s["layer"] for s in found["shares"]] == ["answer", "retrieval", "text"]


def test_the_order_in_which_arms_are_played_does_not_matter() -> None:
    turned, usual = measured(hidden, order=-1), measured(hidden)
    assert turned["why"] == "" and sorted(turned.pop("arms")) == sorted(usual.pop("arms"))
    assert turned == usual


def test_each_ask_and_each_window_adds_up_too() -> None:
    found = measured(hidden)
    for place in range(40):
        lost = 1.0 - hidden(set(), place)
        assert sum(found["asks"][layer][place] for layer in LAYERS) == pytest.approx(lost, abs=1e-9)
    for layer in LAYERS:
        assert len(found["windows"][layer]) == 32


def test_what_no_bypass_brings_back_is_the_rest() -> None:
    found = measured(lambda bypassed, ask: 0.9 if "answer" in bypassed else 0.2)
    assert found["rest"] == pytest.approx(0.1) and found["drop"] == pytest.approx(0.8)


def test_an_ask_that_one_arm_cannot_score_counts_in_none() -> None:
    found = measured(lambda bypassed, ask: float("nan") if ask < 10 and bypassed == {"text"} else hidden(bypassed, ask))
    assert found["scored"] == 30 and found["drop"] == pytest.approx(0.5)


def test_a_layer_that_the_stack_does_not_have_plays_no_part() -> None:
    gone = tuple(f"faulty-without:{'+'.join(c)}" for n in (1, 2, 3) for c in combinations(LAYERS, n) if "text" in c)
    found = measured(hidden, drop=gone)
    assert found["layers"] == ["answer", "retrieval"]
    assert found["shares"][0]["share"] == pytest.approx(0.375)


def test_an_arm_that_did_not_run_is_named() -> None:
    found = measured(hidden, drop=("faulty-without:answer+text",))
    assert (found["shares"], found["why"]) == ([], "arm faulty-without:answer+text did not run")


def test_beyond_five_layers_the_shares_are_estimated_with_an_error_and_still_add_up() -> None:
    layers = ("answer", "retrieval", "a", "b", "c", "d")
    found = measured(hidden, layers)
    told = {s["layer"]: s for s in found["shares"]}
    assert not found["exact"] and told["answer"]["low"] is None
    assert sum(s["share"] for s in told.values()) + found["rest"] == pytest.approx(found["drop"], abs=1e-9)
    assert abs(told["answer"]["share"] - 0.375) <= 4 * told["answer"]["error"] + 1e-9
    assert len(coalitions.needed(layers, seed=1)) < 2 ** len(layers)
