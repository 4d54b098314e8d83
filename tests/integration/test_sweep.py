"""A sweep keeps what is finished, uses it again only while it is whole, and gives what single runs give."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InvalidInput
from testbed.diagnose.summary import Summarize
from testbed.run import sweep
from testbed.run.execute import run_scenario
from testbed.run.settings import Settings
from testbed.run.sweep import Measure, Sweep


def what_ran(folder: Path) -> Any:
    return json.loads((folder / "summary.json").read_text())["digest"]


def means_of(folder: Path) -> Any:
    return {name: arm["means"] for name, arm in json.loads((folder / "summary.json").read_text())["arms"].items()}


MEASURE, MEANS = Measure("digest@1", what_ran), Measure("means@1", means_of)


def cell(seed: int = 1, arms: tuple[str, ...] = ("clean",)) -> Settings:
    return Settings("tenant-leak", seed=seed, queries=10, arms=arms)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    done = Sweep(folder, Summarize(), MEASURE).run([cell(1), cell(2), cell(1)])
    assert [d.settings.seed for d in done] == [1, 2, 1] and done[0].value == done[2].value != done[1].value
    return folder


def test_a_cell_is_what_a_single_run_is(swept: Path, tmp_path: Path) -> None:
    alone = run_scenario(replace(cell(2), results_dir=tmp_path), Summarize())
    (again,) = Sweep(swept, Summarize(), MEASURE).run([cell(2)])
    assert again.reused and again.value == what_ran(alone)


def test_cells_on_other_data_are_judged_as_single_runs_are(tmp_path: Path) -> None:
    cells = [cell(1), replace(cell(1), dataset="lifecycle"), cell(1, ("faulty",))]
    done = Sweep(tmp_path / "s", Summarize(), MEANS).run(cells)
    alone = [means_of(run_scenario(replace(c, results_dir=tmp_path / "r"), Summarize())) for c in cells]
    assert [d.value for d in done] == alone


def test_results_folders_of_cells_do_not_pile_up(swept: Path) -> None:
    assert len(list((swept / "cells").iterdir())) == 2
    assert list((swept / "scratch").iterdir()) == []


def test_two_processes_give_the_same_in_the_order_given(swept: Path, tmp_path: Path) -> None:
    cells = [cell(2), cell(1)]
    parallel = Sweep(tmp_path, Summarize(), MEASURE, n_workers=2).run(cells)
    kept = Sweep(swept, Summarize(), MEASURE).run(cells)
    assert [d.value for d in parallel] == [d.value for d in kept]
    assert [d.reused for d in parallel] == [False, False]


@pytest.mark.parametrize("damage", [b"", b"{", b'{"value": 1}', None])
def test_a_cell_that_is_not_whole_is_run_again(swept: Path, damage: bytes | None) -> None:
    path = swept / "cells" / f"{sweep.fingerprint(cell(2), MEASURE.name)}.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"value":"', b'"value":"f') if damage is None else damage)
    (again,) = Sweep(swept, Summarize(), MEASURE).run([cell(2)])
    assert not again.reused and path.read_bytes() == whole


def test_another_measure_seed_arm_or_code_is_another_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {sweep.fingerprint(cell(1), "a"), sweep.fingerprint(cell(1), "b"), sweep.fingerprint(cell(2), "a")}
    known.add(sweep.fingerprint(cell(1, ("faulty",)), "a"))
    monkeypatch.setattr(sweep, "code_digest", lambda: "changed")
    known.add(sweep.fingerprint(cell(1), "a"))
    assert len(known) == 5


def test_a_cell_that_fails_does_not_stop_a_sweep_that_keeps_going(swept: Path) -> None:
    cells = [replace(cell(1), variant="nobody"), replace(cell(1), dataset="nowhere"), cell(2)]
    first, second, third = Sweep(swept, Summarize(), MEASURE, keeps_going=True).run(cells)
    assert "unknown variant" in first.error and first.value is None and not first.reused
    assert "nowhere" in second.error and second.value is None
    assert third.reused and not third.error
    with pytest.raises(InvalidInput):
        Sweep(swept, Summarize(), MEASURE).run(cells)
