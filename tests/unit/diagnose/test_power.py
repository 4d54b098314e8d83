"""Which rule notices a fault, from what level on, and what a clean run must not do."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.core.scenario import Expect
from testbed.diagnose.power import alarms, detections, noticed, overall, smallest
from tests.unit.diagnose.outcomes import arm, outcome


def run(level: float, drop: float, *, sure: bool = True, violated: dict[str, int] | None = None) -> dict[str, Any]:
    found = outcome(
        {"clean": arm(0.9), "faulty": arm(0.9 - drop, violated=violated)},
        level=level,
        deltas={"faulty": {"mean": -drop, "low": -drop - 0.01, "high": -drop + (0.005 if sure else 0.5)}},
    )
    found["expect"] |= {"drop_at_least": 0.1, "violates": ("freshness",)}
    return found


@pytest.mark.parametrize(
    ("found", "rules"),
    [
        (run(0, 0.0), set()),
        (run(0.1, 0.05), {"metric"}),
        (run(0.1, 0.05, sure=False), set()),
        (run(0.1, 0.01), set()),  # sure, but too small to be worth an alarm
        (run(0.1, 0.0, violated={"lineage": 1}), {"invariants"}),
        (run(1, 0.1, violated={"freshness": 1}), {"invariants", "metric", "expect"}),
        (run(1, 0.1, violated={"lineage": 1}), {"invariants", "metric"}),
    ],
)
def test_each_rule_notices_what_it_is_about(found: dict[str, Any], rules: set[str]) -> None:
    assert noticed(found) == rules


def test_what_the_clean_arm_violates_too_is_not_noticed() -> None:
    found = run(1, 0.0, violated={"lineage": 1})
    found["arms"]["clean"]["violated"] = {"lineage": 3}
    assert noticed(found) == set()


def test_the_smallest_level_is_the_one_from_which_on_all_are_noticed() -> None:
    seen, unseen = {"lineage": 1}, None
    runs = [run(0.0, 0), run(0.01, 0, violated=seen), run(0.1, 0, violated=unseen), run(0.3, 0, violated=seen)]
    found = detections([*runs, run(1.0, 0, violated=seen), run(1.0, 0.5, violated=seen)])
    assert smallest(found) == {("s", "v"): 0.3}
    assert smallest(found, "metric") == {("s", "v"): None}
    assert overall(found)[1.0]["metric"][:2] == (1, 2)


def test_a_clean_run_that_violates_something_is_an_alarm() -> None:
    share, lines = alarms([outcome({"clean": arm(0.9)}), outcome({"clean": arm(0.9, violated={"lineage": 1})}, seed=5)])
    assert (share.hits, share.n) == (1, 2) and lines == ["s/v, seed 5: the clean arm violates lineage"]


def test_the_rules_read_what_scenarios_promise() -> None:
    assert {"drop_at_least", "violates"} <= set(Expect.__dataclass_fields__)
