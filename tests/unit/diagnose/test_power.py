"""What the gate notices of a fault, from what level on, and what it must not say of a clean run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.diagnose import power
from testbed.diagnose.power import TOGETHER, alarms, detections, overall, smallest
from tests.unit.diagnose.judged import BROKEN, BY_CHANCE, HOLDS, arm_scores, run

SAME: dict[str, Any] = {"faulty": (1.0, HOLDS)}


def seen(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    return power.seen(run(tmp_path, **changed).folder)


def test_a_faulty_arm_that_is_the_clean_one_is_not_noticed(tmp_path: Path) -> None:
    found = seen(tmp_path, arms=SAME)
    assert (found["noticed"], found["moved"], found["told"]) == ([], False, [])


def test_a_violation_is_noticed_by_the_invariants_alone(tmp_path: Path) -> None:
    assert seen(tmp_path, arms={"faulty": (1.0, BROKEN)}, moved=("faulty",))["noticed"] == ["invariants"]


def test_a_drop_is_noticed_by_the_metric_alone(tmp_path: Path) -> None:
    found = seen(tmp_path, arms={"faulty": (0.8, HOLDS)}, scores={"faulty": arm_scores(0.8)})
    assert found["noticed"] == ["metric"] and "true fell by 0.200" in found["told"][0]


def test_a_small_drop_is_noticed_of_a_stack_that_is_deterministic_alone(tmp_path: Path) -> None:
    found = seen(tmp_path, arms={"faulty": (0.99, HOLDS)}, scores={"faulty": arm_scores(0.99)})
    assert (found["noticed"], found["noticed_by_chance"], found["moved"]) == (["metric"], [], True)


def test_another_trace_without_a_worse_figure_is_no_failure(tmp_path: Path) -> None:
    found = seen(tmp_path, arms={"faulty": (1.0, HOLDS)}, moved=("faulty",))
    assert (found["noticed"], found["moved"]) == ([], True)


def held(tmp_path: Path, **changed: Any) -> dict[str, Any]:
    """A run with these changes, held to the baseline that one without has left."""
    then = json.loads(json.dumps(power.remembered(run(tmp_path / "then").folder)))
    return power.held_to([then], ["tenant-leak"]).of(run(tmp_path / "now", **changed).folder)


def test_a_clean_run_passes_the_gate_that_an_earlier_one_has_set(tmp_path: Path) -> None:
    found = held(tmp_path)
    assert (found["code"], found["told"], found["unknown"]) == (0, [], [])
    assert alarms([found]) == ((0, 1, 0.0, pytest.approx(0.975)), [])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"arms": {"clean": (1.0, BROKEN)}}, "no-cross-tenant is violated"),
        ({"scores": {"clean": arm_scores(0.8)}}, "true fell by 0.200"),
        ({"moved": ("clean",)}, "another trace"),  # even where no figure changes
        (
            {"scores": {"clean": [None, *arm_scores(0.5)[1:200], *[None] * 200]}},
            "is scored at",
        ),  # a gate that could not tell has not passed
    ],
)
def test_a_clean_run_that_does_not_pass_is_an_alarm(tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    share, lines = alarms([held(tmp_path, **changed)])
    assert (share.hits, share.n) == (1, 1)
    assert lines[0].startswith("tenant-leak/") and says in lines[0]


def test_another_trace_of_a_stack_that_is_not_deterministic_is_no_alarm(tmp_path: Path) -> None:
    then = json.loads(json.dumps(power.remembered(run(tmp_path / "then", settings=BY_CHANCE).folder)))
    now = run(tmp_path / "now", settings=BY_CHANCE, moved=("clean",), scores={"clean": arm_scores(0.99)})
    found = power.held_to([then], ["tenant-leak"]).of(now.folder)
    assert (found["code"], found["moved"]) == (0, False)
    assert alarms([found])[1] == []


def told(level: float, *noticed: str, moved: bool = True) -> dict[str, Any]:
    by_rule = {"noticed": list(noticed), "noticed_by_chance": [n for n in noticed if n != "metric"], "moved": moved}
    return {"scenario": "s", "variant": "v", "seed": 1, "level": level, **by_rule}


def test_the_smallest_level_is_the_one_from_which_on_all_are_noticed() -> None:
    runs = [told(0.0, moved=False), told(0.01, "metric"), told(0.1), told(0.3, "invariants")]
    found = detections([*runs, told(1.0, "invariants"), told(1.0, "invariants", "metric")])
    assert smallest(found) == {("s", "v"): 0.3}
    assert smallest(found, "metric") == {("s", "v"): None}
    assert smallest(found, "exact") == {("s", "v"): 0.01}
    assert smallest(found, "by chance") == {("s", "v"): 0.3}
    assert overall(found)[1.0]["metric"][:2] == (1, 2)
    assert overall(found)[0.0]["exact"][:2] == (0, 1)


def test_a_baseline_of_several_seeds_notices_what_one_of_them_shows() -> None:
    found = detections(
        [told(0.03), told(0.03), told(0.1), told(0.1, "metric"), told(1.0, "metric"), told(1.0, "metric")]
    )
    assert smallest(found) == {("s", "v"): 1.0}
    assert smallest(found, TOGETHER) == {("s", "v"): 0.1}
    assert [shares[TOGETHER][:2] for shares in overall(found).values()] == [(0, 1), (1, 1), (1, 1)]
