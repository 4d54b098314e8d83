"""Tables over many runs: what they say, what they leave on disk, and the exit code."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.core.errors import Undecided
from testbed.diagnose.over_seeds import share
from testbed.diagnose.power import detections
from testbed.report.power import clean_cells, print_power
from testbed.report.sweep import print_sweep
from testbed.run.cells import variants_of
from tests.unit.diagnose.outcomes import arm, outcome

Printed = Callable[..., tuple[int, str]]


@pytest.fixture
def printed() -> Printed:
    def _printed(show: Callable[..., int], *given: Any, **knobs: Any) -> tuple[int, str]:
        text = io.StringIO()
        code = show(*given, Console(file=text, width=140), **knobs)
        return code, text.getvalue()

    return _printed


GOOD = outcome({"clean": arm(0.9), "faulty": arm(0.4, violated={"freshness": 3})}, seed=1)
BROKEN = outcome({"clean": arm(0.9), "faulty": arm(0.9)}, seed=2, failures=["faulty: true fell by 0.0000"])
DIRTY = outcome({"clean": arm(0.9, violated={"lineage": 1}), "faulty": arm(0.4)}, seed=3)
SMALL = outcome({"clean": arm(0.9), "faulty": arm(0.5)}, seed=4, applies=False)


@pytest.mark.parametrize(
    ("runs", "check", "code", "says"),
    [
        ([GOOD], False, 0, "kept"),
        ([GOOD], True, 0, "kept"),
        ([GOOD, BROKEN], False, 0, "BROKEN at 1 of 2"),
        ([GOOD, BROKEN], True, 1, "s / v, seed 2: faulty: true fell by 0.0000"),
        ([GOOD, DIRTY], False, 1, "the clean arm violates lineage at 1 seeds"),
        ([SMALL], False, 0, "not held to it"),
    ],
)
def test_a_sweep_fails_for_a_dirty_clean_arm_and_when_asked_for_a_broken_promise(
    printed: Printed, tmp_path: Path, runs: list[dict[str, Any]], check: bool, code: int, says: str
) -> None:
    found, text = printed(print_sweep, runs, tmp_path, check=check)
    assert found == code and says in text
    (table,) = tmp_path.glob("*.csv")
    (row,) = csv.DictReader(table.read_text().splitlines())
    assert (row["scenario"], row["variant"], row["level"], row["seeds"]) == ("s", "v", "1", str(len(runs)))
    assert len(json.loads(table.with_suffix(".json").read_text())["runs"]) == len(runs)


def test_a_check_of_runs_that_are_held_to_nothing_could_not_tell(printed: Printed, tmp_path: Path) -> None:
    with pytest.raises(Undecided, match="no run is held"):
        printed(print_sweep, [SMALL], tmp_path, check=True)


def test_a_table_of_the_same_runs_has_the_same_name(printed: Printed, tmp_path: Path) -> None:
    for _ in range(2):
        printed(print_sweep, [GOOD, BROKEN], tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_power_fails_when_a_clean_run_alarms(printed: Printed, tmp_path: Path) -> None:
    run = {"scenario": "s", "variant": "v", "seed": 1, "noticed": ["metric"], "noticed_by_chance": [], "moved": True}
    found = detections([run | {"level": level} for level in (0.1, 1.0)])
    code, text = printed(print_power, found, share(0, 300), [], tmp_path)
    assert code == 0 and "0 in 300 clean gate runs" in text and "up to 1.22%" in text
    assert "s/v: the gate notices at least 95% of the runs from level 0.1 on" in text
    code, text = printed(print_power, found, share(1, 300), ["s/v, seed 7: lineage is violated"], tmp_path)
    assert code == 1 and "seed 7" in text
    assert json.loads((tmp_path / "power.json").read_text())["false_alarms"]["hits"] == 1


def test_clean_runs_are_as_many_as_asked_for_and_of_seeds_of_their_own() -> None:
    made = clean_cells(variants_of(["tenant-leak", "version-skew"], "first"), 5)
    assert len(made) == 6 and {c.arms for c in made} == {("clean",)} and min(c.seed for c in made) > 1000
