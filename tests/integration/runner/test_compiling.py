from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.models.runner.compiling import CompileWatch, Report, cause_of, counting, render

pytestmark = pytest.mark.models
ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import dataclasses, json, sys
import torch
torch.set_num_threads(1)
from testbed.models.runner import compiling
report = compiling.toy()
again = compiling.toy(sizes=(4, 4, 4), dtypes=("float32",))
print(json.dumps({"toy": dataclasses.asdict(report), "calm": dataclasses.asdict(again)}))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_toy_model_gives_the_exact_counts_and_a_fresh_process_finds_everything_on_disk(tmp_path: Path) -> None:
    """One process after the other on one cache folder: about a minute, nearly all of it the C++ compiler."""
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    runs: list[dict[str, Any]] = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    for run in runs:
        toy, calm = run["toy"]["graphs"], run["calm"]["graphs"]
        assert [(g["cause"], g["calls"], g["is_dynamic"]) for g in toy] == [
            ("first", 2, False),  # 4, 4
            ("shape", 3, True),  # 8, and then 16, 16 fit the same graph
            ("dtype", 1, True),
        ]
        assert "expected 4, actual 8" in toy[1]["reasons"][0]
        assert "expected Float, actual Double" in toy[2]["reasons"][0]
        assert [(g["cause"], g["calls"]) for g in calm] == [("first", 3)]
    cold, warm = (run["toy"]["counts"] for run in runs)
    assert (cold["fx_hits"], cold["fx_misses"], cold["autograd_misses"]) == (0, 3, 3)
    assert (warm["fx_hits"], warm["fx_misses"], warm["autograd_hits"]) == (3, 0, 3)
    assert cold["graph_breaks"] == warm["graph_breaks"] == 0


def test_the_published_hook_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="cache_hook does not exist"):
        torch._dynamo.config.cache_hook = print


def test_a_watched_graph_is_called_as_it_was_and_counted() -> None:
    """What it costs is measured by tests/bench/test_compile_bench.py."""
    calls: Counter[str] = Counter()
    counted = counting(divmod, calls, "0/1")
    assert [counted(7, 2), counted(9, 4)] == [(3, 1), (2, 1)]
    with pytest.raises(ZeroDivisionError):
        counted(1, 0)
    assert calls == {"0/1": 3}


def test_what_a_watch_changes_it_puts_back() -> None:
    import logging

    log = logging.getLogger("torch._dynamo.guards.__recompiles")
    before = (log.level, log.propagate, list(log.handlers))
    with CompileWatch() as watch:
        pass
    assert (log.level, log.propagate, list(log.handlers)) == before
    assert watch.report().graphs == () and watch.report().recompiles == {}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("0/0: tensor 'args[0]' size mismatch at index 0. expected 4, actual 8", "shape"),
        ("2 <= args[0].size()[0]  # (x)", "shape"),
        ("tensor 'x' dtype mismatch. expected Float, actual Double", "dtype"),
        ("tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU), actual DispatchKeySet(Meta)", "device"),
        ("tensor 'x' stride mismatch at index 0. expected 32, actual 1", "stride"),
        ("GLOBAL_STATE changed: grad_mode", "grad"),
        ("___check_obj_id(self, 1)", "object"),
        ("something new", "other"),
    ],
)
def test_reasons_are_sorted_by_cause(reason: str, cause: str) -> None:
    assert cause_of(reason) == cause


def test_a_report_without_calls_has_no_hit_rate() -> None:
    assert "hit rate nan of 0 calls; recompiles: none" in render(Report((), {}))
