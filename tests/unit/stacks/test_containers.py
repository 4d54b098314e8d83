"""What is said to Compose, and what is made of what it says; no engine needed."""

from __future__ import annotations

import dataclasses
import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InvalidInput, Unavailable
from testbed.stacks import containers, sandbox
from testbed.stacks.sandbox import Container, Sandbox

UP = Container("redis", "id1", "sha256:1", "running", "healthy", 0, "2026-01-01T00:00:00Z", 0, False)


def said(monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, str]]) -> list[tuple[str, ...]]:
    """Docker says what it is told to say here: exit code and output by the start of the command."""
    calls: list[tuple[str, ...]] = []

    def docker(self: Sandbox, *words: str, timeout_s: float = 0) -> subprocess.CompletedProcess[str]:
        calls.append(words)
        line = " ".join(words)
        code, text = next((answer for start, answer in answers.items() if line.startswith(start)), (0, ""))
        return subprocess.CompletedProcess(words, code, text if code == 0 else "", text if code else "")

    monkeypatch.setattr(Sandbox, "docker", docker)
    return calls


@pytest.mark.parametrize(
    ("text", "version"), [("2.26.1-4", (2, 26)), ("2.40.3+ds1", (2, 40)), ("1.29.2", (1, 29)), ("dev", (0, 0))]
)
def test_versions_of_compose_are_read(text: str, version: tuple[int, int]) -> None:
    assert sandbox.compose_version(text) == version


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({"compose version": (1, "unknown command: compose")}, "Compose v2 is missing"),
        ({"compose version": (0, "v2.20.0")}, "2.20.0 is too old; expected 2.26 or newer"),
        (
            {"compose version": (0, "2.26.1"), "version": (1, "Cannot connect to the Docker daemon")},
            "no Docker engine answers .*Cannot connect",
        ),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, str]], says: str
) -> None:
    calls = said(monkeypatch, answers)
    with pytest.raises(Unavailable, match=says):
        sandbox.up(Sandbox())
    assert not any("up" in call for call in calls)


def test_a_machine_without_docker_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="docker is not installed; BACKEND=compose needs Docker"):
        sandbox.check(Sandbox(env={"PATH": str(tmp_path)}))


def test_a_silent_engine_ends_in_a_message(tmp_path: Path) -> None:
    fake = tmp_path / "docker"
    fake.write_text("#!/bin/sh\nexec sleep 30\n")
    fake.chmod(0o755)
    with pytest.raises(Unavailable, match="did not end within 0 s"):
        Sandbox(env={"PATH": f"{tmp_path}:/bin:/usr/bin"}).docker("version", timeout_s=0.2)


def test_a_folder_given_as_dataset_is_mounted_read_only(tmp_path: Path) -> None:
    folder = tmp_path / "my_docs"
    folder.mkdir()
    words, mounts = containers.inside(["run", "tenant-leak", "--dataset", str(folder), "--seed", "1"])
    assert words == ["run", "tenant-leak", "--dataset", "/srv/data/my_docs", "--seed", "1"]
    assert mounts == ["--volume", f"{folder}:/srv/data/my_docs:ro"]


def test_the_backend_is_not_passed_on_and_a_named_dataset_is() -> None:
    words, mounts = containers.inside(["run", "x", "--backend=compose", "--dataset=ledger", "--backend", "compose"])
    assert (words, mounts) == (["run", "x", "--dataset", "ledger"], [])


def test_a_dataset_that_is_no_folder_is_refused() -> None:
    with pytest.raises(InvalidInput, match="DATASET=/no/such/folder is not a folder"):
        containers.inside(["run", "x", "--dataset", "/no/such/folder"])


def test_the_password_is_made_once_behind_a_closed_folder(tmp_path: Path) -> None:
    box = Sandbox(root=tmp_path, env={"SECRETS_DIR": "secrets"})
    file = sandbox.ensure_password(box)
    first = file.read_text()
    assert len(first) == 48 and sandbox.ensure_password(box).read_text() == first
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert (file.parent / ".gitignore").read_text() == "*\n"
    other = Sandbox(root=tmp_path, env={"SECRETS_DIR": "others"})
    assert sandbox.ensure_password(other).read_text() != first


def test_a_variable_that_make_exports_empty_is_not_set(tmp_path: Path) -> None:
    """Taken as a path it would be the repository itself, whose folders root would then give to the harness's user."""
    box = Sandbox(root=tmp_path, env={"RESULTS_DIR": "", "COMPOSE_PROJECT_NAME": ""})
    assert box.path_of("RESULTS_DIR", "results") == tmp_path / "results" and box.project == "rag-testbed"
    assert Sandbox(root=tmp_path, env={"RESULTS_DIR": "/r"}).path_of("RESULTS_DIR", "results") == Path("/r")


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (UP, []),
        (None, ["redis: its container was removed during the run"]),
        (dataclasses.replace(UP, id="id2"), ["redis: its container was removed during the run"]),
        (
            dataclasses.replace(UP, state="exited", health="unhealthy", exit_code=137),
            ["redis: is exited (exit code 137, SIGKILL); `make up` brings it back"],
        ),
        (
            dataclasses.replace(UP, state="exited", exit_code=137, out_of_memory=True),
            ["redis: is exited (out of memory); `make up` brings it back"],
        ),
        (
            dataclasses.replace(UP, started="2026-01-01T00:01:00Z", restarts=1),
            ["redis: died during the run and was started again by the restart policy; it is healthy"],
        ),
        (
            dataclasses.replace(UP, started="2026-01-01T00:01:00Z"),
            ["redis: died during the run and was started again by somebody; it is healthy"],
        ),
        (dataclasses.replace(UP, health="unhealthy"), ["redis: is unhealthy"]),
    ],
)
def test_the_harness_says_what_happened_to_a_service(after: Container | None, says: list[str]) -> None:
    assert containers.what_happened([UP], [after] if after else []) == says


def test_a_service_that_was_down_before_is_no_news() -> None:
    stopped = dataclasses.replace(UP, state="exited", health="", exit_code=143)
    assert containers.what_happened([stopped], [stopped]) == []


def test_a_service_that_does_not_get_healthy_is_named_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {
        "Id": "id1",
        "Image": "sha256:1",
        "RestartCount": 3,
        "Config": {"Labels": {"com.docker.compose.service": "redis"}},
        "State": {
            "Status": "restarting",
            "Health": {"Status": "unhealthy"},
            "ExitCode": 1,
            "StartedAt": "x",
            "OOMKilled": False,
        },
    }
    said(
        monkeypatch,
        {
            "compose --progress plain --profile * ps": (0, "id1"),
            "inspect": (0, json.dumps([told])),
            "logs": (0, "FATAL CONFIG FILE ERROR"),
        },
    )
    story = sandbox.why_not_up(Sandbox(), "dependency failed to start")
    assert "redis is restarting (unhealthy)" in story and "FATAL CONFIG FILE ERROR" in story


def test_up_waits_as_long_as_the_slowest_service_may_take_to_start() -> None:
    """A first start of the model runner took longer than `make up` waited for it."""
    periods = re.findall(r"start_period: (\d+)s", (sandbox.ROOT / "compose.yaml").read_text())
    assert max(map(int, periods)) <= containers.FIRST_UP_S


def test_it_runs_on_a_bare_python() -> None:
    """`make up` has to work where only Docker and Python are: no site-packages, no project installed."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "testbed.stacks.containers", "--help"],
        cwd=sandbox.ROOT,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    assert "up" in done.stdout
