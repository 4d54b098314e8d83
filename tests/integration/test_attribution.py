"""How attribution methods are judged: the truth is the injector's, clean runs must stay unblamed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from testbed.diagnose import trials
from testbed.report import attribution
from testbed.run import scenarios
from testbed.run.settings import Settings

pytest.importorskip("torch", reason="the models extra is not installed")


def is_control(cell: Settings) -> bool:
    return cell.arms[1].startswith(trials.CONTROL)


def test_a_tier_holds_faulty_runs_of_every_scenario_and_as_many_kinds_of_clean_ones() -> None:
    small = trials.cells(trials.TIERS["small"])
    every = [s for s in map(scenarios.load, scenarios.names()) if not s.layers]
    told = {s.name for s in every if any(v.expect.blame for v in s.variants)}
    assert {c.scenario for c in small} == told - set(scenarios.slow())
    controls = [c for c in small if is_control(c)]
    silent = [c for c in small if c.level == 0.0]
    assert len(controls) == len(silent) == len({(c.scenario, c.seed) for c in small})
    own = trials.cells(trials.TIERS["small"], ["prefix-leak"])
    assert own[-1].arms == ("clean", "clean-without:prefix", "clean-without:prefix+text")
    full = trials.cells(trials.TIERS["full"])
    assert sum(c.level > 0 and not is_control(c) for c in full) >= 300


def test_replay_names_the_broken_layer_and_nobody_when_nothing_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [c for c in trials.cells(trials.TIERS["small"]) if c.scenario == "tenant-leak" and c.seed == 1]
    faulty = next(c for c in small if c.level == 1.0)
    cells = [replace(faulty, queries=120)]
    cells += [replace(c, queries=30) for c in small if c.level == 0.0 or is_control(c)]
    monkeypatch.setattr(trials, "cells", lambda tier, only: cells)
    monkeypatch.setenv("TESTBED_WORKERS", "1")
    for _ in range(2):  # the second time from what the first kept
        attribution.print_attribution(tmp_path, trials.tier("small"), Console(width=110), lambda what, done, of: None)
    rows = (tmp_path / "small.csv").read_text().splitlines()
    assert rows[1].startswith('"one layer, level 1",bypass and replay,1,"1.000 [') and ',2,"0.000 [' in rows[1]
    assert len(list((tmp_path / "cells").iterdir())) == 3
    printed = capsys.readouterr().out
    assert printed.count("attribution: 3 runs of 120 questions (small tier)") == 2
