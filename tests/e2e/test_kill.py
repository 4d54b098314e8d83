"""A run that is killed leaves no server behind and no folder that reads as whole; the next one works."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from testbed.core import seeds
from testbed.core.errors import InvalidInput
from testbed.record.folder import PARTIAL, RunReader
from testbed.record.runs import runs
from tests.e2e.command import ROOT, command, environment, play
from tests.e2e.conftest import Play

pytestmark = pytest.mark.e2e

MOMENTS = 10
GONE_S = 10.0


def processes_below(folder: Path) -> list[str]:
    """Command lines that name a path below ``folder``: the servers of runs whose TMPDIR that is."""
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if str(folder) in line and not line.startswith("ps ")]


def gone(folder: Path, within_s: float) -> bool:
    end = time.monotonic() + within_s
    while processes_below(folder):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture(scope="module")
def takes_s(played: Play, home: Path) -> float:
    """How long a small run takes here, with its embeddings at hand."""
    played("tenant-leak")
    started = time.monotonic()
    play(home, "tenant-leak", QUERIES="60")
    return time.monotonic() - started


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_killed_at_ten_random_moments(
    played: Play, home: Path, tmp_path: Path, takes_s: float, number: signal.Signals
) -> None:
    temporary = tmp_path / "t"
    temporary.mkdir()
    results = tmp_path / "results"
    env = environment(home, RESULTS_DIR=str(results), TMPDIR=str(temporary), QUERIES="60")
    cut_short = 0
    for moment in range(3 * MOMENTS):  # a run may end before its moment comes: that one does not count
        running = subprocess.Popen(
            command("run", "tenant-leak"), cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            running.wait(seeds.uniform(1, "kill", number.name, str(moment)) * takes_s)
        except subprocess.TimeoutExpired:
            os.kill(running.pid, number)
            cut_short += 1
        code = running.wait(GONE_S)
        assert code in (0, -signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM)
        # After SIGTERM the run itself has stopped its server; after SIGKILL the server's watchdog does.
        assert gone(temporary, 0.5 if number == signal.SIGTERM else GONE_S), processes_below(temporary)
        check_folders(results)
        if cut_short == MOMENTS:
            break
    assert cut_short == MOMENTS, "that many runs must have been killed for this to mean anything"
    after = play(home, "tenant-leak", RESULTS_DIR=str(results), TMPDIR=str(temporary), QUERIES="60")
    assert after.digest == played("tenant-leak").digest
    assert sorted(temporary.iterdir()) == []


def check_folders(results: Path) -> None:
    """What is called whole is whole, and what is not is called half and refused."""
    for row in runs(results):
        if row.name.startswith(PARTIAL):
            assert row.status.startswith("half")
            with pytest.raises(InvalidInput):
                RunReader(row.folder)
        else:
            RunReader(row.folder).verify()
