"""The gate as CI calls it: an unchanged tree passes, a broken one fails and says where, doubt is no pass.

The stack under test is a module of the user's own around the reference stack, which the tests break.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.command import ROOT, Ran, call, environment
from tests.e2e.readme import make

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.e2e

SMALL = {"QUERIES": "100"}  # of a deterministic stack, so that one worse ask is seen
SOUND = """
from testbed.stacks.reference import build as reference

DETERMINISTIC = True


def build(parts):
    return reference(parts)
"""
# The tenant is no longer part of the answer cache's key: the bug of the scenario, in the stack's own code.
BROKEN = """
from testbed.stacks.reference import build as reference

DETERMINISTIC = True


def build(parts):
    stack = reference(parts)
    whole = stack.answer_key
    stack.answer_key = lambda query: whole(query).without("tenant")
    return stack
"""
DOCS = ROOT / "docs" / "gate.md"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Path:
    """A folder with a stack of its own and a baseline of it."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "mine.py").write_text(SOUND)
    ran = gate(home, folder, "baseline", "tenant-leak", STACK="mine:build")
    assert ran.code == 0, ran
    assert (folder / "baselines" / "tenant-leak.json").stat().st_size < 32_000
    return folder


@pytest.fixture
def broken(project: Path) -> Iterator[Path]:
    (project / "mine.py").write_text(BROKEN)
    yield project
    (project / "mine.py").write_text(SOUND)


def gate(home: Path, project: Path, *argv: str, **knobs: str) -> Ran:
    path = os.pathsep.join([str(project), str(ROOT)])
    own = {"PYTHONPATH": path, "BASELINES_DIR": str(project / "baselines"), "PYTHONDONTWRITEBYTECODE": "1"}
    return call(home, *(argv or ("gate",)), **SMALL | own | knobs)


def test_an_unchanged_tree_passes(home: Path, project: Path) -> None:
    ran = gate(home, project, QUERIES="")
    assert ran.code == 0, ran
    assert re.search(r"tenant-leak +answer-key +42 +100 .* the baseline's +\w{8} +passed", ran.out)
    assert "not gated" in ran.out and "version-skew" in ran.out
    assert ran.out.endswith("gate        passed\n")


def test_a_broken_stack_fails_and_is_told_in_every_form(home: Path, broken: Path) -> None:
    ran = gate(home, broken, "gate", "--junit", f"{broken}/junit.xml", "--summary", f"{broken}/s.md", "--annotations")
    assert ran.code == 1, ran
    text = " ".join(ran.out.split())
    assert "FAILED tenant-leak / answer-key, seed 42, clean: invariants no-cross-tenant is violated" in text
    assert "layer answer witness op" in text and "was answered from" in text
    told = r"true fell by 0\.\d+, 0\.\d+ -> 0\.\d+ \(95 % interval of the difference -\d\.\d+ to [+-]\d\.\d+, tolerance"
    assert re.search(told, text)
    assert "expect no longer as promised: faulty" in text
    assert "determinism" not in re.findall(r"FAILED [^:]*: (\w+)", text), "the same bug twice is no lack of determinism"
    failures = ET.parse(broken / "junit.xml").findall(".//testcase[@name='clean seed=42']/failure")
    assert len(failures) == 1 and "was answered from" in (failures[0].text or "")
    assert "❌ **tenant-leak / answer-key, seed 42, clean** (invariants)" in (broken / "s.md").read_text()
    errors = [line for line in ran.out.splitlines() if line.startswith("::error ")]
    assert 0 < len(errors) <= 10 and "first witness" in errors[0]


def test_a_service_that_is_down_is_exit_code_3(home: Path, project: Path) -> None:
    ran = gate(home, project, QUERIES="", REDIS_URL="redis://127.0.0.1:1/0")
    assert ran.code == 3, ran
    assert "redis is not reachable at 127.0.0.1:1" in " ".join(ran.out.split())
    assert "not the stack" in ran.out


def test_too_few_queries_are_exit_code_4(home: Path, project: Path) -> None:
    ran = gate(home, project, QUERIES="60")
    assert ran.code == 4 and "too few queries: QUERIES=60" in ran.out, ran


def test_a_stale_baseline_is_exit_code_4_with_the_command_that_renews_it(home: Path, project: Path) -> None:
    path = project / "baselines" / "tenant-leak.json"
    kept = path.read_text()
    value = json.loads(kept)
    value["cells"][0]["made_from"]["data"]["digest"] = "0" * 64
    path.write_text(json.dumps(value))
    try:
        ran = gate(home, project, QUERIES="")
    finally:
        path.write_text(kept)
    text = " ".join(ran.out.split())
    assert ran.code == 4 and "stale baseline: changed since it was recorded: data digest" in text, ran
    assert "make baseline NAME=tenant-leak VARIANT=answer-key SEED=42 QUERIES=100 STACK=mine:build" in text


def test_a_scenario_without_a_baseline_and_no_baseline_at_all_are_exit_code_4(home: Path, project: Path) -> None:
    ran = gate(home, project, "gate", "version-skew")
    assert ran.code == 4 and "make baseline NAME=version-skew" in " ".join(ran.out.split()), ran
    ran = gate(home, project, BASELINES_DIR=str(project / "none"))
    assert ran.code == 4 and "make baseline NAME=" in ran.err, ran


def test_pytest_gates_with_the_plugin_and_plays_scenarios(
    home: Path, project: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(home, PYTHONPATH=os.pathsep.join([str(project), str(ROOT)])).items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile(
        """
        def test_a_fixed_stack_leaks_nothing(pollution_run):
            run = pollution_run("tenant-leak", queries=20, arms=("clean", "faulty"))
            assert run is pollution_run("tenant-leak", queries=20, arms=("clean", "faulty"))
            assert run.violated("clean") == []
            assert run.mean("clean", "true") > 0.5
            assert (run.folder / "summary.json").is_file() and len(run.digest) == 64
        """
    )
    done = pytester.runpytest_subprocess(
        *("-p", "testbed.pytest_plugin", "--rag-gate", "--rag-must-see", "0.9", "-v", "--junitxml=out.xml"),
        f"--rag-baselines={project / 'baselines'}",
    )
    done.assert_outcomes(passed=2)
    done.stdout.fnmatch_lines(["*rag-gate?tenant-leak-answer-key-42?*PASSED*"])
    case = next(c for c in ET.parse(pytester.path / "out.xml").iter("testcase") if "rag-gate" in c.get("name", ""))
    assert {p.get("name") for p in case.iter("property")} == {"seed", "digest"}


def commands() -> list[str]:
    """Every command that the document shows, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    return [line.split("  #")[0].strip() for block in blocks for line in block.splitlines() if line.strip()]


def test_the_commands_of_the_document_do_what_it_says(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELINES_DIR", str(tmp_path / "baselines"))
    knobs = {"RESULTS_DIR": str(tmp_path / "results"), "BASELINES_DIR": str(tmp_path / "baselines")}
    shown = commands()
    assert len(shown) >= 6
    for command in shown:
        words = shlex.split(command)
        if words[0] == "make":
            placed = command.replace("=gate/", f"={tmp_path}/gate/").replace("BENCH=gate", f"BENCH={tmp_path}/gate")
            make(placed, home, **SMALL | knobs)
        else:  # python -m testbed ..., in a folder of its own: one of them writes into it
            assert words[:3] == ["python", "-m", "testbed"], command
            env = environment(home, PYTHONPATH=str(ROOT), **knobs)
            done = subprocess.run([sys.executable, *words[1:]], cwd=tmp_path, env=env, capture_output=True, check=False)
            assert done.returncode == 0, done
    assert (tmp_path / ".github" / "workflows" / "rag-gate.yml").is_file()
    assert sorted(path.name for path in (tmp_path / "gate").iterdir()) == [
        "bench-latency.json",
        "bench-quality.json",
        "junit.xml",
        "summary.md",
    ]


def test_power_of_a_stack_with_chance_in_it_is_told_without_its_trace(home: Path, tmp_path: Path) -> None:
    """The stack of docs/power.md: every run has another trace, which is no alarm, and nothing for EXACT=1."""
    asked = ("--seeds", "1", "--queries", "100", "--clean", "1", "--json")
    knobs = {"STACK": "noisy_stack:build", "PYTHONPATH": str(ROOT / "scripts"), "RESULTS_DIR": str(tmp_path)}
    ran = call(home, "power", "tenant-leak", *asked, **knobs)
    told = json.loads(ran.out)
    assert ran.code == (1 if told["false_alarms"]["hits"] else 0)
    assert told["false_alarms"]["n"] == 1
    assert "another trace" not in " ".join(told["false_alarms"]["lines"])
    levels = {d["level"]: {rule: s["hits"] for rule, s in d["shares"].items()} for d in told["detections"]}
    assert all(found["exact"] == found["gate"] for found in levels.values())
    assert levels[1.0]["invariants"] == levels[1.0]["gate"] == 1
