"""Every line of the README's section "In Docker" is run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.stacks import sandbox
from testbed.stacks.sandbox import ROOT, Sandbox
from tests.integration.docker.conftest import PROJECT, needs_docker, own_sandbox

SECTION = re.compile(r"^## In Docker\n.*?^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def lines() -> list[str]:
    found = SECTION.search((ROOT / "README.md").read_text())
    assert found is not None, "README.md has no section In Docker with a block of commands"
    return [line.split("  #")[0].strip() for line in found[1].splitlines()]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A sandbox of its own, and this Python in place of the one that make would install."""
    folder = tmp_path_factory.mktemp("readme")
    box = own_sandbox(folder, f"{PROJECT}-readme")
    needs_docker(box)
    program = folder / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    asked = subprocess.run(["make", "-n", "up", f"VENV={folder}/venv"], cwd=ROOT, capture_output=True, text=True)
    for stamp in set(re.findall(rf"{folder}/venv/\.installed\S*?(?=[\s\"]|$)", asked.stdout)):
        Path(stamp).touch()
    memo = os.environ.get("TESTBED_CACHE_DIR", f"{folder}/memo")
    knobs = {"VENV": f"{folder}/venv", "QUERIES": "20", "TESTBED_CACHE_DIR": memo}
    box = Sandbox(env={**box.env, **knobs})
    sandbox.down(box)
    yield box
    sandbox.down(box)


@pytest.mark.proof
def test_every_line_runs_in_order_and_nothing_is_left(own: Sandbox) -> None:
    env = {n: v for n, v in own.env.items() if n not in ("MAKEFLAGS", "BACKEND")}
    digests: dict[str, str] = {}
    for line in lines():
        done = subprocess.run(["sh", "-c", line], cwd=ROOT, env=env, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        if "make scenario" in line:
            digests[line] = re.findall(r"^digest +(\S+)$", done.stdout, re.MULTILINE)[-1]
    in_compose, embedded = (f"make scenario NAME=tenant-leak SEED=42{more}" for more in (" BACKEND=compose", ""))
    assert len(digests) == 5 and re.fullmatch("[0-9a-f]{64}", digests[embedded])
    assert digests[in_compose] == digests[embedded], "the README says: the same digest"
    label = f"label=com.docker.compose.project={own.project}"
    for what in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
        assert own.docker(*what, "--quiet", "--filter", label).stdout == "", what
    assert os.path.isdir(own.env["RESULTS_DIR"])
