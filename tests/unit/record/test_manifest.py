from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from testbed.record import manifest


def described() -> dict[str, object]:
    return manifest.describe(
        scenario="s",
        variant="v",
        seed=1,
        level=1.0,
        scenario_digest="d",
        data={"name": "ledger", "digest": "x"},
        settings={"redis_url": "redis://user:secret@there:6379/0", "results_dir": Path.home() / "out"},
        arms=["clean"],
        metrics={},
        argv=["run", f"--results={Path.home()}/out"],
    )


def test_no_password_and_no_home_folder_is_recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    text = json.dumps(described())
    assert "secret" not in text and str(tmp_path) not in text
    found = described()
    assert found["settings"] == {"redis_url": "redis://***@there:6379/0", "results_dir": "~/out"}
    assert found["argv"] == ["run", "--results=~/out"]


def test_a_folder_that_only_starts_like_home_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert manifest.shareable("/home/anna/x") == "/home/anna/x"
    assert manifest.shareable("/home/ann/x") == "~/x"
    assert manifest.shareable(3) == 3


def test_git_state_tells_commit_and_change(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "file").write_text("1")
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    clean = manifest.git_state(tmp_path)
    (tmp_path / "file").write_text("2")
    dirty = manifest.git_state(tmp_path)
    assert clean is not None and dirty is not None
    assert len(clean["commit"]) == 40 and not clean["dirty"]
    assert dirty == {"commit": clean["commit"], "dirty": True}


def test_git_state_is_none_outside_a_checkout(tmp_path: Path) -> None:
    assert manifest.git_state(tmp_path) is None


def test_the_host_is_a_class_of_machine() -> None:
    import socket

    found = manifest.host()
    assert set(found) == {"system", "machine", "cpu", "cores"}
    assert socket.gethostname() not in json.dumps(found)


def test_cpu_model_is_read_where_the_system_tells(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Fast One @ 3 GHz\n")
    assert manifest.cpu_model(tmp_path / "cpuinfo") == "Fast One @ 3 GHz"
