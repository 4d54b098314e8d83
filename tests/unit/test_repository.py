"""What the files around the package promise: pins that are pins, a workflow that is one, targets that are explained."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def pins(file: str = "constraints.txt") -> dict[str, str]:
    lines = [line for line in (ROOT / file).read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("==") for line in lines)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt"])
def test_every_pin_is_a_name_and_an_exact_version(file: str) -> None:
    for name, version in pins(file).items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name) and re.fullmatch(r"[0-9][0-9a-z.]*", version), (name, version)


def test_everything_that_is_asked_for_is_pinned() -> None:
    pinned = {normal(name) for name in pins()}
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    asked = {normal(re.split(r"[\s\[<>=!~;]", line)[0]) for line in lines}
    assert sorted(asked - pinned) == []


def test_the_lowest_set_is_what_is_declared_as_the_lowest() -> None:
    """CI runs the smallest scenario on it, so a floor that is declared is one that was run."""
    lowest = {normal(name): version for name, version in pins("constraints-lowest.txt").items()}
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["models"]]:
        name, floor = re.fullmatch(r"([\w.-]+)>=([\w.]+)", line).groups()  # type: ignore[union-attr]
        assert re.fullmatch(rf"{re.escape(floor)}(\.0)*", lowest[normal(name)]), (line, lowest[normal(name)])


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_valid_and_their_actions_pinned_by_commit(workflow: Path) -> None:
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(workflow)]
    done = subprocess.run(checker, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    used = re.findall(r"uses:\s*(\S+)", workflow.read_text())
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used)


def test_workflows_run_make_targets_that_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    lines = [line for path in WORKFLOWS for line in path.read_text().splitlines() if "run: make" in line]
    words = [word for line in lines for word in re.sub(r"\$\{\{.*?\}\}", "", line).split("make", 1)[1].split()]
    called = {word for word in words if "=" not in word}
    assert called and called <= targets


def test_every_target_is_explained_by_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    explained = re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE)
    assert targets is not None
    assert sorted(targets[1].split()) == sorted(explained)
