from __future__ import annotations

import csv
import io
import json
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from testbed.core.errors import Incomparable, InvalidInput
from testbed.diagnose.comparison import Compared, compare_sides, side
from testbed.diagnose.contrast import Contrast, Name, Pair, contrasts, over_scenarios
from testbed.report.comparison import print_comparison
from tests.unit.diagnose.judged import DESCRIBED, N_ASKS, arm_scores, run


def row(found: Compared, arm: str, metric: str, group: int = 0) -> Contrast:
    return next(r for r in found.groups[group].rows if r.name == (arm, metric))


def both(tmp_path: Path, *, across: tuple[str, ...] = (), **changed: Any) -> Compared:
    a, b = run(tmp_path / "a"), run(tmp_path / "b", **changed)
    return compare_sides(side(tmp_path, str(a.folder)), side(tmp_path, str(b.folder)), across)


def test_a_contrast_counts_wins_ties_and_losses_and_says_how_large_the_effect_is() -> None:
    a = np.array([0.0, 0.0, 1.0, 1.0, np.nan, 1.0])
    b = np.array([1.0, 0.0, 1.0, 0.0, 1.0, 0.0])
    (found,) = contrasts([{Name("clean", "true"): Pair(a, b)}], seed=1, name="x")
    assert (found.wins, found.ties, found.losses, found.scored, found.unscored) == (1, 2, 2, 5, 1)
    assert (found.a, found.b) == pytest.approx((0.6, 0.4))
    assert found.interval.mean == pytest.approx(-0.2) and found.loss == pytest.approx(0.2)
    deltas = np.array([1.0, 0.0, 0.0, -1.0, -1.0])
    assert found.effect == pytest.approx(-0.2 / deltas.std())


def test_less_of_a_leak_is_a_win() -> None:
    pair = Pair(np.array([1.0, 1.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    for metric in ("bad hits[answer]", "behind > 60 s"):
        assert contrasts([{Name("clean", metric): pair}], seed=1, name="x")[0].loss == pytest.approx(-1 / 3)
    (found,) = contrasts([{Name("clean", "leak rate"): pair}], seed=1, name="x")
    assert (found.wins, found.losses) == (1, 0) and found.loss == pytest.approx(-1 / 3)


def test_one_scenario_among_many_has_its_p_value_adjusted_and_keeps_the_order_of_its_own() -> None:
    rng = np.random.default_rng(1)
    none = np.zeros(400)
    pairs = {Name("clean", f"m{i}"): Pair(none, rng.normal(size=400) - shift) for i, shift in enumerate((0.3, 0.1))}
    rows = contrasts([pairs], seed=1, name="x")
    found = over_scenarios({"x": rows, **{f"y{i}": [] for i in range(9)}})["x"]
    assert found[0].p_holm == pytest.approx(min(1.0, 10 * rows[0].p))
    assert found[0].p_holm <= found[1].p_holm <= 1.0


def test_runs_are_compared_ask_by_ask(tmp_path: Path) -> None:
    found = both(tmp_path, scores={"clean": arm_scores(0.8)})
    lower = row(found, "clean", "true")
    assert (lower.wins, lower.ties, lower.losses) == (0, 320, 80)
    assert lower.interval.low < -0.2 < lower.interval.high < 0 and lower.p_holm < 0.05
    assert 0 < lower.detectable < 0.2
    same = row(found, "clean+cure", "true")
    assert (same.interval.mean, same.p_holm, same.ties) == (0.0, 1.0, N_ASKS)
    assert row(found, "clean", "valid hits[answer]").scored == N_ASKS


def test_two_fixes_of_one_run_are_compared_by_their_arms(tmp_path: Path) -> None:
    reader = run(tmp_path)
    found = compare_sides(side(tmp_path, f"{reader.folder}@faulty"), side(tmp_path, f"{reader.folder}@faulty+cure"))
    assert {r.name.arm for r in found.groups[0].rows} == {"faulty -> faulty+cure"}
    assert row(found, "faulty -> faulty+cure", "true").wins == 200
    with pytest.raises(InvalidInput, match=r"did you mean 'faulty\+cure'"):
        compare_sides(side(tmp_path, f"{reader.folder}@faulty+cur"), side(tmp_path, str(reader.folder)))


def test_folders_are_paired_by_scenario_and_seed_and_seeds_are_pooled(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        run(tmp_path / "before", seed=seed)
        run(tmp_path / "after", seed=seed, scores={"clean": arm_scores(0.9)})
    run(tmp_path / "before", seed=4)
    run(tmp_path / "after", seed=1, scores={"clean": arm_scores(0.9)})  # the newest of a seed counts
    found = compare_sides(side(tmp_path, str(tmp_path / "before")), side(tmp_path, str(tmp_path / "after")))
    assert len(found.groups) == 1 and len(found.groups[0].runs) == 3
    assert len(found.only_a) == 1 and "s4" in found.only_a[0] and found.only_b == ()
    assert row(found, "clean", "true").scored == 3 * N_ASKS
    with pytest.raises(InvalidInput, match="no whole run in"):
        side(tmp_path, str(tmp_path))


def test_other_questions_are_not_paired_and_nothing_is_said_of_how_sure_a_difference_is(tmp_path: Path) -> None:
    with pytest.raises(Incomparable, match="--across seed"):
        both(tmp_path, seed=7)
    a, b = run(tmp_path / "c"), run(tmp_path / "d", seed=7, first_ask=2)
    found = compare_sides(side(tmp_path, str(a.folder)), side(tmp_path, str(b.folder)), ("seed",))
    assert not found.groups[0].paired
    only = row(found, "clean", "true")
    assert only.interval.mean == 0.0 and isnan(only.interval.low) and isnan(only.p_holm)


def test_what_is_not_comparable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Incomparable, match=r"settings\.stack: 'reference' against 'mine:build'"):
        both(tmp_path, settings={**DESCRIBED["settings"], "stack": "mine:build"})


@pytest.mark.parametrize("form", ["text", "markdown", "csv", "latex", "json"])
def test_every_form_has_the_difference_and_its_interval(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = run(tmp_path / "a"), run(tmp_path / "b", scores={"clean": arm_scores(0.8)})
    console = Console(width=140, highlight=False, markup=False)
    print_comparison(tmp_path, str(a.folder), str(b.folder), across=(), form=form, console=console)
    out = capsys.readouterr().out
    if form == "json":
        changes = {(c["arm"], c["metric"]): c for c in json.loads(out)["changes"]}
        assert changes["clean", "true"]["delta"] == pytest.approx(-0.2)
        assert changes["clean", "true"]["losses"] == 80
    elif form == "csv":
        rows = {(r["arm"], r["metric"]): r for r in csv.DictReader(io.StringIO(out))}
        assert float(rows["clean", "true"]["delta"]) == pytest.approx(-0.2)
        assert float(rows["clean", "true"]["low"]) < -0.2 < float(rows["clean", "true"]["high"])
    elif form == "latex":
        assert out.startswith("\\begin{tabular}{llrrrrrrrrr}\n") and out.endswith("\\end{tabular}\n")
        (line,) = [line for line in out.splitlines() if line.startswith("clean & true &")]
        assert "$-$0.200" in line and "0/320/80" in line and line.endswith("\\\\")
    elif form == "markdown":
        assert "| clean | true | 1.000 | 0.800 | -0.200 |" in out
    else:
        assert "0/320/80" in out and "-0.200" in out and "max-T" in out
