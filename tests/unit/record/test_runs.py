from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.record.runs import find, runs
from tests.unit.record.recorded import crash, record


def test_a_run_is_found_by_path_scenario_name_and_digest(tmp_path: Path) -> None:
    older = record(tmp_path, started="20260101T000000Z")
    newer = record(tmp_path, seed=43, started="20260102T000000Z")
    digest = newer.name.rsplit("-", 1)[1]
    assert find(tmp_path, str(older)) == older
    assert find(tmp_path, f"tenant-leak/{older.name}") == older
    assert find(tmp_path, "tenant-leak") == newer
    assert find(tmp_path, digest) == newer
    assert find(tmp_path, "tenant-leak/latest").resolve() == newer.resolve()


def test_a_name_that_fits_two_runs_is_refused(tmp_path: Path) -> None:
    record(tmp_path)
    record(tmp_path)
    with pytest.raises(InvalidInput, match="names 2 runs"):
        find(tmp_path, "-s42-")


@pytest.mark.parametrize("name", ["", "nothing", "../elsewhere"])
def test_a_name_of_no_run_says_what_to_do(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="testbed list --runs"):
        find(tmp_path, name)


def test_half_runs_are_listed_as_half(tmp_path: Path) -> None:
    record(tmp_path)
    crash(tmp_path)
    (tmp_path / "tenant-leak" / ".partial-broken").mkdir()
    assert sorted(row.status for row in runs(tmp_path)) == ["finished", "half (no manifest)", "half (started)"]


def test_other_folders_are_not_runs(tmp_path: Path) -> None:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "x.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "folder").mkdir()
    assert runs(tmp_path) == []
    assert runs(tmp_path / "nowhere") == []
