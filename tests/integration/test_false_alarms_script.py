"""The figures of docs/gate.md on stacks with chance in them come from this script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testbed.diagnose.significance import numbered
from tests.scripts import loaded

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("stack", ["reference", "noisy_stack:build"])
def test_runs_of_one_seed_are_held_to_one_another(stack: str) -> None:
    asked = ["tenant-leak", "--runs", "2", "--queries", "60", "--workers", "1", "--stack", stack]
    done = subprocess.run(
        [sys.executable, "scripts/false_alarms.py", *asked],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "scripts"},
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["resampled"] for row in rows] == ["blocks", "blocks and questions"]
    assert {row["pairs"] for row in rows} == {1}
    if stack == "reference":  # the same twice: nothing differs, and nothing is significant
        assert {row["alarms"] for row in rows} == {0}


def test_runs_in_which_the_asks_of_a_question_share_its_fate_are_no_alarm() -> None:
    """One popular question is answered wrong in the second run, scattered over the stream."""
    popular = np.tile([1, 0, 0, 0, 0, 0, 0, 0], 50).astype(bool)
    questions = numbered(list(np.where(popular, 0, np.arange(400) % 37 + 1)))
    then, now = np.ones(400), np.where(popular, 0.0, 1.0)
    runs = [{("clean", "true"): then}, {("clean", "true"): now}]
    script = loaded("false_alarms")
    assert script.told(runs, None) == (1, 1)
    assert script.told(runs, questions) == (0, 1)
