from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ("-p", "testbed.pytest_plugin")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def test_loading_the_plugin_imports_nothing_heavy() -> None:
    heavy = ("numpy", "faiss", "torch", "redis", "pyarrow", "orjson", "rich", "typer")
    own = "len([m for m in sys.modules if m.startswith('testbed')])"
    code = f"import sys, testbed.pytest_plugin; print([m for m in {heavy!r} if m in sys.modules], {own})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[] 2"


def test_an_installation_brings_the_plugin_under_the_name_of_its_module() -> None:
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    assert entries == {"testbed.pytest_plugin": "testbed.pytest_plugin"}


def test_without_the_option_nothing_is_added(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)


def test_no_baseline_at_all_is_a_usage_error_that_says_how_to_make_one(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_mine(): pass")
    done = pytester.runpytest_subprocess(*PLUGIN, "--rag-gate")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(
        ["*--rag-gate: no baselines in */results/baselines; make one: testbed baseline <scenario>"]
    )


def test_a_broken_baseline_is_a_usage_error_that_names_it(pytester: pytest.Pytester) -> None:
    pytester.makefile(".json", tenant="{")
    done = pytester.runpytest_subprocess(*PLUGIN, "--rag-gate", "--rag-baselines=.")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*tenant.json: not a baseline*"])


def test_options_and_fixture_explain_themselves(pytester: pytest.Pytester) -> None:
    shown = pytester.runpytest_subprocess(*PLUGIN, "--help").stdout
    shown.fnmatch_lines(["*--rag-gate*nothing is worse*"])
    shown = pytester.runpytest_subprocess(*PLUGIN, "--fixtures").stdout
    shown.fnmatch_lines(["pollution_run*"])
