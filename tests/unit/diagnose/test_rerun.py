"""What may become a baseline: nothing that is worse than the one that is there, without a reason that is kept."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.core.errors import InvalidInput, Unavailable, Undecided
from testbed.diagnose import rerun
from testbed.diagnose.remember import cell_of
from testbed.diagnose.rerun import Ask, Recorded
from testbed.record import baseline
from testbed.record.baseline import Baseline
from testbed.report.gate import print_recorded
from testbed.run.settings import Settings
from tests.unit.diagnose.judged import BROKEN, BY_CHANCE, arm_scores, run, usual_cell

Record = Callable[..., Recorded]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    """Record a run that is made by hand: the second play of it is the same, or ``again``."""

    def _record(accept: str = "", again: dict[str, Any] | None = None, **changed: Any) -> Recorded:
        reader = run(tmp_path / "runs", **changed)
        second = run(tmp_path / "runs", **again) if again is not None else reader
        monkeypatch.setattr(rerun, "run_scenario", lambda settings, judge, progress: reader.folder)
        monkeypatch.setattr(rerun.workers, "in_fresh_process", lambda call, *arguments: second.folder)
        return rerun.record(
            Settings("tenant-leak"),
            tmp_path / "baselines",
            accept=accept,
            must_see=0.1,
            progress=lambda what, done, of: None,
        )

    return _record


def kept(tmp_path: Path) -> Baseline:
    found = baseline.read(tmp_path / "baselines", "tenant-leak")
    assert found is not None
    return found


def test_the_first_run_becomes_the_baseline(record: Record, tmp_path: Path) -> None:
    found = record()
    assert found.path == tmp_path / "baselines" / "tenant-leak.json" and found.worse == ()
    assert kept(tmp_path).cells[0].digest == usual_cell().digest


def test_a_worse_run_is_refused_and_nothing_is_written(record: Record, tmp_path: Path) -> None:
    record()
    before = (tmp_path / "baselines" / "tenant-leak.json").read_bytes()
    found = record(scores={"clean": arm_scores(0.8)})
    assert found.path is None and not found.too_small
    assert found.worse[0].startswith("clean: true fell by 0.200")
    assert (tmp_path / "baselines" / "tenant-leak.json").read_bytes() == before


def test_a_refusal_says_what_is_worse_and_how_to_record_it_all_the_same(record: Record) -> None:
    record()
    written = StringIO()
    found = record(scores={"clean": arm_scores(0.8)})
    code = print_recorded(found, Console(file=written, width=100, highlight=False, markup=False))
    text = " ".join(written.getvalue().split())
    assert code == 1
    assert "moved clean: true 1.000 -> 0.800" in text and "REFUSED clean: true fell by 0.200" in text
    assert "the baseline is as it was" in text and "ACCEPT='...'" in text


def test_a_run_that_is_too_small_is_refused_with_exit_code_4(record: Record) -> None:
    assert print_recorded(record(detectable=0.4, settings=BY_CHANCE), Console(file=StringIO())) == 4


def test_a_worse_run_is_recorded_with_a_reason_which_is_kept(record: Record, tmp_path: Path) -> None:
    record()
    record(accept="a smaller model, on purpose", scores={"clean": arm_scores(0.8)})
    assert kept(tmp_path).cells[0].accepted == "a smaller model, on purpose"
    record()  # better again: nothing needs a reason
    assert kept(tmp_path).cells[0].accepted == ""


def test_a_changed_scenario_cannot_hide_a_lower_mean(record: Record) -> None:
    record()
    found = record(scenario_digest="changed", scores={"clean": arm_scores(0.8)})
    assert found.path is None and found.worse[0].startswith("clean: true 1.000 -> 0.800 (another experiment")
    assert record(scenario_digest="changed").path is not None


def test_a_newly_violated_invariant_is_refused(record: Record) -> None:
    record()
    assert "no-cross-tenant is violated 7 times" in record(arms={"clean": (1.0, BROKEN)}).worse[0]


def test_a_run_that_is_not_the_same_twice_is_refused(record: Record) -> None:
    assert "played a second time" in record(again={"moved": ("clean",)}).worse[0]


def test_a_run_that_could_not_see_a_drop_is_refused(record: Record) -> None:
    found = record(detectable=0.4, settings=BY_CHANCE)
    assert found.path is None and found.too_small


def test_tolerances_that_somebody_has_edited_stay(record: Record, tmp_path: Path) -> None:
    record()
    path = tmp_path / "baselines" / "tenant-leak.json"
    path.write_text(path.read_text().replace('"true": 0.0', '"true": 0.3'))
    record(scores={"clean": arm_scores(0.8)})
    assert kept(tmp_path).cells[0].tolerance["true"] == 0.3


def test_a_stack_that_calls_itself_deterministic_from_now_on_is_played_twice(record: Record, tmp_path: Path) -> None:
    record(settings=BY_CHANCE)
    assert kept(tmp_path).cells[0].tolerance["true"] == 0.02
    assert "played a second time" in record(again={"moved": ("clean",)}).worse[0]
    record()
    assert (kept(tmp_path).cells[0].deterministic, kept(tmp_path).cells[0].tolerance["true"]) == (True, 0.0)


def test_another_experiment_may_differ_by_what_chance_explains(record: Record) -> None:
    record()
    assert record(scenario_digest="changed", scores={"clean": arm_scores(0.99)}).path is not None


def test_no_baseline_at_all_is_told_with_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(Undecided, match="make baseline NAME="):
        rerun.play(Ask(baselines=tmp_path))


def test_an_error_while_playing_is_kept_and_never_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: Settings, *rest: object) -> Path:
        raise Unavailable("redis is not reachable at nowhere")

    baseline.write(tmp_path, Baseline("tenant-leak", (cell_of(run(tmp_path / "runs")),)))
    monkeypatch.setattr(rerun, "preview", lambda settings, judge: run(tmp_path / "runs").manifest)
    monkeypatch.setattr(rerun, "run_scenario", fail)
    found = rerun.play(Ask(names=("tenant-leak",), baselines=tmp_path))
    assert found.code == 3
    assert found.cells[0].findings[0].text == "redis is not reachable at nowhere"


def test_a_stack_that_cannot_be_imported_is_a_wrong_knob(tmp_path: Path) -> None:
    baseline.write(tmp_path, Baseline("tenant-leak", (usual_cell(),)))
    with pytest.raises(InvalidInput, match="STACK=nobody:build"):
        rerun.play(Ask(baselines=tmp_path, stack="nobody:build"))
