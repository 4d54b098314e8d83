from __future__ import annotations

from typing import Any

import pytest

from testbed.report.verdict import drop, tiles, verdict
from tests.unit.report.summaries import SUMMARY, summary


def sentence(**changed: Any) -> str:
    return verdict(summary(**changed)).sentence.replace("\u00a0", " ")


def blamed(*shares: tuple[str, float, float]) -> list[dict[str, Any]]:
    return [{"layer": layer, "share": share, "low": low, "high": share, "why": ""} for layer, share, low in shares]


def fix(name: str, share: float, **changed: Any) -> dict[str, Any]:
    return {"fix": name, "recovered": {"share": share}, "metric_lost": 0.0, "violates": []} | changed


def with_arm(name: str, **changed: Any) -> dict[str, Any]:
    arms = dict(SUMMARY["arms"])
    return arms | {name: dict(arms.get(name, arms["clean"])) | changed}


def test_layer_drop_and_cure_are_one_sentence() -> None:
    assert sentence() == (
        "The answer cache did it: true answers fall from 95 % to 60 %; typed-tenant-key cures it at no cost."
    )


def test_two_guilty_layers_are_both_named() -> None:
    told = sentence(blame=blamed(("answer", 0.6, 0.5), ("index", 0.4, 0.3), ("text", 0.1, 0.05)))
    assert told.startswith("The answer cache and the index did it: ")


def test_two_layers_that_were_left_out_together_are_told_together() -> None:
    blame = blamed(("answer+index", 1.0, 0.9), ("index", 0.95, 0.8), ("answer", 0.05, 0.0))
    told = verdict(summary(blame=blame))
    assert told.sentence.startswith("The answer cache and the index did it: ")
    assert told.detail.replace("\u00a0", " ").endswith(
        "Without the answer cache and the index 100 % of the drop is gone (95 % interval 90 % to 100 %)."
    )


def test_a_layer_whose_interval_holds_zero_is_not_named() -> None:
    assert sentence(blame=blamed(("answer", 0.5, -0.1))).startswith("No layer can be named: true answers fall")


def few(worse: int, **mended: int) -> list[dict[str, Any]]:
    why = "the drop of 0.0100 is not clearly above 0"
    unsure = {"share": None, "low": None, "high": None, "why": why, "worse": worse, "drop": 0.01}
    return [{"layer": layer, "mended": count, **unsure} for layer, count in mended.items()]


def test_harm_of_few_asks_is_told_of_a_stack_that_is_deterministic_alone() -> None:
    unclear = {**SUMMARY["deltas"], "faulty": {"true": {"mean": -0.01, "low": -0.03, "high": 0.01}}}
    blame = few(4, answer=4, text=1)
    told = sentence(deltas=unclear, blame=blame, deterministic=True)
    assert told.startswith("Little harm, at 4 of 400 asks, by the answer cache: ")
    assert sentence(deltas=unclear, blame=blame).startswith("No clear harm: ")
    assert sentence(deltas=unclear, blame=few(0, answer=0), deterministic=True).startswith("No clear harm: ")
    gain = [{**row, "drop": -0.11} for row in blame]
    assert sentence(deltas=unclear, blame=gain, deterministic=True).startswith("No clear harm: ")
    assert sentence(deltas=unclear, blame=few(40, answer=40), deterministic=True).startswith("Harm, at 40 of 400 asks")
    nobody = few(4, answer=2, text=2)
    assert sentence(deltas=unclear, blame=nobody, deterministic=True).startswith("Little harm, at 4 of 400 asks: ")


def test_a_cure_that_costs_says_how_much() -> None:
    arms = with_arm("faulty+typed-tenant-key", hits=0.07)
    assert sentence(arms=arms).endswith("; typed-tenant-key cures it and costs 0.33 of hit rate.")


def test_a_fix_that_still_violates_or_gives_little_back_is_no_cure() -> None:
    assert sentence(fixes=[fix("a", 1.0, violates=["lineage"]), fix("b", 0.5)]).endswith(
        "no fix that was tried cures it."
    )


def test_no_drop_is_no_harm_unless_something_is_violated() -> None:
    same = {"faulty": {"true": {"mean": -0.01, "low": -0.03, "high": 0.01}}}
    assert sentence(deltas=same).endswith(
        "60 % of the answers are true with the fault, 95 % without it, yet no-cross-tenant is violated 37 times."
    )
    quiet = with_arm("faulty", verdicts=[])
    found = verdict(summary(deltas=same, arms=quiet))
    assert found.mood == "calm" and found.sentence.startswith("No clear harm: ")


@pytest.mark.parametrize(
    ("metric", "delta", "is_drop"),
    [
        ("true", (-0.3, -0.4, -0.2), True),
        ("true", (0.3, 0.2, 0.4), False),
        ("stale rate", (0.3, 0.2, 0.4), True),
        ("stale rate", (-0.3, -0.4, -0.2), False),
        ("true", (-0.3, -0.7, 0.1), False),
    ],
)
def test_a_drop_is_a_clear_move_for_the_worse(metric: str, delta: tuple[float, float, float], is_drop: bool) -> None:
    found = {"faulty": {metric: dict(zip(("mean", "low", "high"), delta, strict=True))}}
    assert drop(summary(metric=metric, deltas=found)) == (0.3 if is_drop else None)


def test_an_unscored_metric_could_not_be_told() -> None:
    assert sentence(metric="nDCG@5") == "Could not tell: no question is scored for nDCG@5."


def test_a_broken_promise_is_told() -> None:
    expect = SUMMARY["expect"] | {"failures": ["true fell by 0.01 only"]}
    assert verdict(summary(expect=expect)).kept is False
    assert verdict(summary(expect=SUMMARY["expect"] | {"applies": False})).kept is None


def test_the_tiles_hold_the_hit_rate_that_looks_better_beside_the_valid_one() -> None:
    found = {tile.label: tile for tile in tiles(SUMMARY)}
    assert found["true"].bad and found["true"].note == "(-0.40 to -0.30)"
    assert (found["hit rate"].note, found["hit rate"].bad) == ("looks better", False)
    assert found["valid hit rate"].bad and found["valid hit rate"].change == "-0.100"
    assert found["faithful"].note == "does not see the harm"


def test_a_clear_drop_that_is_too_small_for_a_share_is_told_by_its_asks() -> None:
    tiny = {**SUMMARY["deltas"], "faulty": {"true": {"mean": -0.004, "low": -0.006, "high": -0.002}}}
    told = verdict(summary(deltas=tiny, blame=few(4, answer=4), deterministic=True)).detail
    assert "Without the answer cache 4 of the 4 asks are right again." in told
