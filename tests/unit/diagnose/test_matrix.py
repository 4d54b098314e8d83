"""The matrix says of each pair what a reader with a pencil would."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.core.scenario import Expect, Variant
from testbed.diagnose.matrix import Meeting, arms, can_meet, meetings
from testbed.report.matrix import kibibytes, picture, print_matrix
from testbed.run import scenarios
from tests.unit.diagnose.outcomes import arm, outcome


class Fix:
    needs: frozenset[str] = frozenset()

    def __init__(self, name: str) -> None:
        self.name = name


VARIANT: Any = Variant("v", "", (), (Fix("cure"),), None, Expect("true", 0.1, "answer", ()))  # type: ignore[arg-type]


def told(share: float | None, why: str = "") -> dict[str, Any]:
    return {"share": share, "low": share, "high": share, "why": why}


def found() -> dict[str, Meeting]:
    run = outcome(
        {
            "clean": arm(0.9, hits=0.5, p95_ms=10.0),
            "faulty": arm(0.5, hits=0.7, violated={"freshness": 4}),
            "faulty+cure": arm(0.88, hits=0.4),
            "clean+cure": arm(0.9, hits=0.45, p95_ms=12.0, held_bytes=4072),
            "faulty+other": arm(0.5, hits=0.7, violated={"freshness": 4, "lineage": 1}),
            "clean+other": arm(0.9, hits=0.5, p95_ms=10.0, violated={"no-cross-tenant": 2}),
            "faulty+alien": {"status": "unsupported", "why": "the stack has no index"},
            "clean+alien": arm(0.9),
        },
        fixes=[
            {"fix": "cure", "recovered": told(0.95)},
            {"fix": "other", "recovered": told(0.0)},
        ],
    )
    return {m.fix: m for m in meetings(run, VARIANT, ["cure", "other", "alien"])}


def test_a_cure_is_priced_on_the_clean_stack() -> None:
    cure = found()["cure"]
    assert (cure.effect, cure.own, cure.opens, cure.still) == ("cures", True, (), {})
    assert cure.residual == pytest.approx(0.02)
    assert cure.metric_lost == pytest.approx(0.0)
    assert cure.hits_lost == pytest.approx(0.05)
    assert cure.hits_lost_faulty == pytest.approx(0.1)
    assert cure.p95_ms_added == pytest.approx(2.0)
    assert cure.held_bytes_added == 3072 and kibibytes(cure) == "+3.0"


def test_what_was_not_recorded_is_no_memory_of_zero() -> None:
    run = outcome({name: arm(0.5, held_bytes=None) for name in arms(["cure"])}, fixes=[])
    (met,) = meetings(run, VARIANT, ["cure"])
    assert math.isnan(met.held_bytes_added) and kibibytes(met) == ""


def test_a_violation_that_only_the_fix_brings_is_opened_by_it() -> None:
    other = found()["other"]
    assert other.effect == "nothing" and not other.own
    assert other.opens == ("lineage", "no-cross-tenant") and other.still == {"freshness": 4, "lineage": 1}


def test_a_fix_that_cannot_run_is_unsupported_and_says_why() -> None:
    alien = found()["alien"]
    assert (alien.effect, alien.why) == ("unsupported", "the stack has no index")


@pytest.mark.parametrize(
    ("share", "effect"),
    [(1.0, "cures"), (0.94, "helps"), (0.05, "helps"), (0.04, "nothing"), (-0.04, "nothing"), (-0.05, "harms")],
)
def test_an_effect_is_read_off_the_share_of_the_drop(share: float, effect: str) -> None:
    run = outcome({name: arm(0.5) for name in arms(["cure"])}, fixes=[{"fix": "cure", "recovered": told(share)}])
    assert meetings(run, VARIANT, ["cure"])[0].effect == effect


@pytest.mark.parametrize(
    ("fix", "fault", "blame", "meets"),
    [
        ({"layers.answer"}, {"layers.answer"}, "answer", True),
        ({"index", "source"}, {"layers.answer", "source"}, "answer", False),
        ({"layers.answer"}, {"semantic"}, "", True),
        ({"index"}, {"layers.embedding"}, "embedding+index", True),
        ({"layers.tiers.l1"}, {"layers.answer"}, "answer", False),
        ({"source"}, {"layers.answer"}, "answer", True),
        ({"layers.answer"}, set(), "", True),
    ],
)
def test_a_fix_can_meet_a_fault_where_both_touch_the_same_part(
    fix: set[str], fault: set[str], blame: str, meets: bool
) -> None:
    mine, theirs = Fix("fix"), Fix("fault")
    mine.needs, theirs.needs = frozenset(fix), frozenset(fault)
    variant: Any = Variant("v", "", (theirs,), (), None, Expect("true", 0.1, blame, ()))  # type: ignore[arg-type]
    assert can_meet(mine, variant) is meets  # type: ignore[arg-type]


def test_a_fix_also_meets_what_it_wraps_without_needing_it_and_an_own_one_meets_its_variant() -> None:
    answer = next(v for v in scenarios.load("tenant-leak").variants if v.name == "answer-key")
    text: Any = Fix("partition")
    text.needs, text.layers = frozenset({"index"}), ("answer",)
    assert can_meet(text, answer)
    text.layers = ("text",)
    assert not can_meet(text, answer)
    assert all(can_meet(fix, v) for name in scenarios.names() for v in scenarios.load(name).variants for fix in v.fixes)


def test_a_pair_that_was_not_run_is_apart() -> None:
    run = outcome({name: arm(0.5) for name in arms(["cure"])}, fixes=[{"fix": "cure", "recovered": told(0.0)}])
    assert [m.effect for m in meetings(run, VARIANT, ["cure", "other"])] == ["nothing", "apart"]


def test_without_a_clear_drop_nothing_can_be_told() -> None:
    run = outcome(
        {name: arm(0.5) for name in arms(["cure"])},
        fixes=[{"fix": "cure", "recovered": told(None, "the drop of 0.0000 is not clearly above 0")}],
    )
    (met,) = meetings(run, VARIANT, ["cure"])
    assert met.effect == "could not tell" and "not clearly" in met.why


def test_of_a_metric_of_which_less_is_better_the_residual_is_what_is_above_clean() -> None:
    run = outcome(
        {"clean": arm(0.0), "faulty": arm(0.4), "faulty+cure": arm(0.1), "clean+cure": arm(0.0)},
        metric="leak rate",
        fixes=[{"fix": "cure", "recovered": told(0.75)}],
    )
    assert meetings(run, VARIANT, ["cure"])[0].residual == pytest.approx(0.1)


def test_the_picture_has_a_square_for_each_pair_and_a_cross_for_each_new_violation() -> None:
    drawn = picture(list(found().values()))
    assert drawn.count("<title>") == 3 and drawn.count('stroke="#8b0000"') == 1
    assert "s/v + cure: cures, recovers 95 %" in drawn


def test_what_was_left_out_is_told_below_the_table_with_how_to_get_it(tmp_path: Path) -> None:
    shown = io.StringIO()
    print_matrix([*found().values()], 1, tmp_path, Console(file=shown, width=200), left_out=("slow-one", "other"))
    (line,) = [line for line in shown.getvalue().splitlines() if line.startswith("left out")]
    assert "slow-one, other" in line and "testbed matrix slow-one" in line and "--full" in line
    assert "KiB" in shown.getvalue()
