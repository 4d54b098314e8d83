"""The docker part of CI where there is no engine: said in one line, and an error only where one is required."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def part(folder: Path, starter: str | None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run .ci/docker with an engine that does not answer, and a program that should start one (None: there is none)."""
    (folder / "bin").mkdir()
    for name, script in (("bin/docker", "exit 1"), ("start", starter)):
        if script is not None:
            (folder / name).write_text(f"#!/bin/sh\n{script}\n")
            (folder / name).chmod(0o755)
    told = {"PATH": f"{folder}/bin:/usr/bin:/bin", "DOCKER_START": str(folder / "start"), **env}
    return subprocess.run([ROOT / ".ci" / "docker"], env=told, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("starter", [None, "exit 2"], ids=["no starter", "a machine that cannot"])
def test_without_an_engine_it_is_skipped_in_one_line(tmp_path: Path, starter: str | None) -> None:
    done = part(tmp_path, starter)
    assert done.returncode == 0 and done.stdout.startswith("docker: skipped: ") and done.stdout.count("\n") == 1


@pytest.mark.parametrize("starter", [None, "exit 2"], ids=["no starter", "a machine that cannot"])
def test_where_an_engine_is_required_that_is_an_error(tmp_path: Path, starter: str | None) -> None:
    assert part(tmp_path, starter, REQUIRE_DOCKER="1").returncode == 1


def test_an_engine_that_fails_to_start_is_told_with_its_exit_code(tmp_path: Path) -> None:
    done = part(tmp_path, "echo no such package >&2; exit 3")
    assert done.returncode == 0 and "ended with 3" in done.stdout and "no such package" in done.stderr


def test_the_starter_is_told_which_images_are_pinned(tmp_path: Path) -> None:
    done = part(tmp_path, f'echo "$@" > {tmp_path}/told; exit 2', REDIS_IMAGE="redis:test")
    assert done.returncode == 0
    up, *images = (tmp_path / "told").read_text().split()
    compose = (ROOT / "compose.yaml").read_text()
    assert up == "up" and images[1] == "redis:test" and len(images) == 3
    assert f"${{PYTHON_IMAGE:-{images[0]}}}" in compose and f"${{CHROMA_IMAGE:-{images[2]}}}" in compose
