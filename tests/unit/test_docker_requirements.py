"""What the images install is what pyproject.toml declares."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def printed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "docker" / "requirements.py"), str(ROOT / "pyproject.toml"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_it_prints_every_dependency_and_those_of_the_extras_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["models"]]
    assert printed("--extras", "models").stdout.splitlines() == list(dict.fromkeys(wanted))


def test_a_distribution_is_swapped_for_another() -> None:
    lines = printed("--swap", "faiss-cpu=faiss-gpu", "--extras", "chroma", "--swap", "chromadb=chromadb-client==1.5.9")
    assert "faiss-gpu" in lines.stdout.splitlines() and "chromadb-client==1.5.9" in lines.stdout.splitlines()
    assert "faiss-cpu" not in lines.stdout


def test_only_what_is_asked_for() -> None:
    assert [x.partition(">")[0] for x in printed("--extras", "models", "--only", "torch").stdout.split()] == ["torch"]


def test_what_is_not_declared_is_said() -> None:
    assert "no extra 'nope'" in printed("--extras", "nope").stderr
    assert "not declared: torch" in printed("--only", "torch").stderr
