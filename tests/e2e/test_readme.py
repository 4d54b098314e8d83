"""The README shows commands that exist and output that is real."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.e2e.command import ROOT, call
from tests.e2e.conftest import Play
from tests.e2e.readme import README, Shown, make, shown, steady

pytestmark = pytest.mark.e2e

SHOWN = shown(README.read_text())
NAMED = sorted(set(re.findall(r"`(make [a-z][^`<]*)`", README.read_text())))


@pytest.mark.parametrize("found", SHOWN, ids=lambda found: found.command)
def test_shown_output_is_what_the_command_prints(home: Path, found: Shown) -> None:
    assert steady(found.output) == steady(make(found.command, home)), "python -m tests.e2e.readme writes it anew"


def test_the_first_screen_shows_a_run() -> None:
    first = README.read_text().splitlines()[:60]
    assert any(line.startswith("$ make scenario NAME=tenant-leak SEED=42") for line in first)
    assert any(line.startswith("faulty ") for line in first) and any(line.startswith("witness ") for line in first)


@pytest.mark.parametrize("command", NAMED)
def test_named_commands_exist(command: str) -> None:
    done = subprocess.run(["make", "-n", *command.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_shortest_proof_in_the_docs_is_what_shrink_prints(played: Play, home: Path) -> None:
    text = (ROOT / "docs" / "diagnosis.md").read_text()
    (found,) = [block for block in shown(text) if block.command.endswith("shrink tenant-leak")]
    assert call(home, "shrink", str(played("tenant-leak").folder)).out.startswith(found.output)
