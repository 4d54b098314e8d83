"""A sweep that is killed at any moment goes on where it was: the same results, nothing lost, nothing run twice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testbed.core import seeds
from tests.e2e import sweeping
from tests.e2e.command import ROOT, environment
from tests.e2e.test_kill import gone, processes_below

pytestmark = pytest.mark.e2e

MOMENTS = {signal.SIGKILL: 20, signal.SIGTERM: 4, signal.SIGINT: 4}
EARLY = 0.7  # of the time that the whole sweep takes: one that goes on has less to do
LIMIT_S = 240  # the first sweep embeds every text


class Place(NamedTuple):
    """Where a sweep works, and where its runs leave a line."""

    folder: Path
    log: Path
    temporary: Path
    env: Mapping[str, str]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.sweeping", str(self.folder)],
            cwd=ROOT,
            env=dict(self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finished(self) -> set[str]:
        return {path.stem for path in (self.folder / "cells").glob("*.json")}

    def runs(self) -> Counter[str]:
        return Counter(self.log.read_text().split()) if self.log.exists() else Counter()


def place(root: Path, home: Path) -> Place:
    """A new one; servers of its runs are below ``temporary``, which is in the temporary folder: paths must be short."""
    root.mkdir()
    temporary = root / "t"
    temporary.mkdir()
    log = root / "log"
    env = environment(home, TMPDIR=str(temporary), SWEEP_LOG=str(log))
    return Place(root / "s", log, temporary, env)


def ended(running: subprocess.Popen[str]) -> Any:
    out, err = running.communicate(timeout=LIMIT_S)
    assert running.returncode == 0, err
    return json.loads(out)


class Whole(NamedTuple):
    value: Any
    takes_s: float


@pytest.fixture(scope="module")
def whole(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """What the sweep gives when nobody interrupts it, and how long it takes with all embeddings at hand."""
    root = tmp_path_factory.mktemp("whole")
    ended(place(root / "a", home).start())
    started = time.monotonic()
    there = place(root / "b", home)
    value = ended(there.start())
    assert sorted(there.finished()) == sorted(sweeping.names()) and there.runs() == Counter(sweeping.names())
    return Whole(value, time.monotonic() - started)


@pytest.mark.parametrize("number", list(MOMENTS), ids=lambda n: n.name)
def test_killed_at_random_moments_it_goes_on_where_it_was(
    whole: Whole, home: Path, tmp_path: Path, number: signal.Signals
) -> None:
    n_sweeps, cut_short = 0, 0
    there = place(tmp_path / "0", home)
    for moment in range(MOMENTS[number]):
        before, ran = there.finished(), there.runs()
        running = there.start()
        try:
            running.wait(seeds.uniform(1, "kill", number.name, str(moment)) * whole.takes_s * EARLY)
        except subprocess.TimeoutExpired:
            running.send_signal(number)
            cut_short += 1
        out, err = running.communicate(timeout=LIMIT_S)
        assert running.returncode in (0, -number, 128 + number), err
        assert gone(there.temporary, 10), processes_below(there.temporary)
        assert before <= there.finished(), "a finished cell was lost"
        assert all(there.runs()[cell] == ran[cell] for cell in before), "a finished cell was run again"
        if running.returncode == 0:
            assert json.loads(out) == whole.value
            n_sweeps += 1
            there = place(tmp_path / str(n_sweeps), home)
    assert ended(there.start()) == whole.value
    assert sorted(there.finished()) == sorted(sweeping.names())
    assert not [*(there.folder / "scratch").iterdir()] and not [*(there.folder / "cells").glob("*.tmp")]
    assert cut_short >= MOMENTS[number] / 2, "most sweeps must have been killed for this to mean anything"


def test_a_second_sweep_in_the_same_folder_is_told_so(whole: Whole, home: Path, tmp_path: Path) -> None:
    there = place(tmp_path / "0", home)
    first = there.start()
    while not (there.folder / "scratch").exists():  # at work: it has its lock
        assert first.poll() is None
        time.sleep(0.01)
    second = there.start()
    _, err = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 3
    assert err.count("\n") == 1 and f"another sweep is at work in {there.folder}" in err
    assert ended(first) == whole.value
    assert there.runs() == Counter(sweeping.names())
