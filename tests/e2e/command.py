"""The command line in a process of its own, as a user runs it: clean environment, own results folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240
KNOBS = frozenset(
    {
        "NAME",
        "VARIANT",
        "BLAME",
        "SEED",
        "POLLUTION_LEVEL",
        "STACK",
        "STORE",
        "DATASET",
        "QUERIES",
        "BACKEND",
        "REDIS_URL",
        "CHROMA_URL",
        "RESULTS_DIR",
        "SCENARIOS_DIR",
        "BASELINES_DIR",
        "EXACT",
        "MUST_SEE",
        "ACCEPT",
        "JUNIT",
        "SUMMARY",
        "ANNOTATIONS",
        "BENCH",
        "TIMINGS",
        "BENCH_BASELINE",
        "PYTHONHASHSEED",
        "COLUMNS",
        "NO_COLOR",
        "FORCE_COLOR",
    }
)


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Outcome(NamedTuple):
    """A finished run: its folder, its summary, its manifest."""

    folder: Path
    summary: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def digest(self) -> str:
        return str(self.summary["digest"])


def environment(home: Path, **knobs: str) -> dict[str, str]:
    """This process's, without its knobs, and with folders below ``home`` for results and embeddings."""
    kept = {name: value for name, value in os.environ.items() if name not in KNOBS}
    own = {"RESULTS_DIR": str(home / "results"), "TESTBED_CACHE_DIR": str(home / "cache")}
    return kept | own | knobs


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "testbed", *argv]


def call(home: Path, *argv: str, **knobs: str) -> Ran:
    done = subprocess.run(
        command(*argv),
        cwd=ROOT,
        env=environment(home, **knobs),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def play(home: Path, scenario: str, **knobs: str) -> Outcome:
    """Run a scenario to its end; fails with what it said when that was not exit code 0."""
    ran = call(home, "run", scenario, "--json", **knobs)
    assert ran.code == 0, f"exit code {ran.code}\n{ran.out[-2000:]}\n{ran.err[-4000:]}"
    summary = json.loads(ran.out)
    folder = ROOT / summary["folder"]
    return Outcome(folder, summary, json.loads((folder / "manifest.json").read_text()))
