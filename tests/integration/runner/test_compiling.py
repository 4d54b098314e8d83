from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from testbed.models.runner import compiling
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


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_watch_changes_it_puts_back(fails: bool) -> None:
    import logging

    from torch._dynamo import eval_frame, utils

    log = logging.getLogger("torch._dynamo.guards.__recompiles")

    def state() -> list[Any]:
        kept = utils._compilation_metrics.maxlen
        return [log.level, log.propagate, [*log.handlers], eval_frame._stance, eval_frame._callback_from_stance, kept]

    before = state()
    with contextlib.suppress(KeyboardInterrupt), CompileWatch() as watch:
        assert all(now != then for now, then in zip(state()[2:], before[2:], strict=True))
        if fails:
            raise KeyboardInterrupt
    assert state() == before
    assert watch.report().graphs == () and watch.report().recompiles == {}


def watched_calls(within: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext) -> list[Any]:
    """A function called with 4, 4, 8, then 4 more under ``within``, then 8: the graphs and their calls."""
    torch._dynamo.reset()
    step = torch.compile(lambda x: x.sin() + 1, backend="eager")
    with CompileWatch(generates_code=False) as watch:
        for size in (4, 4, 8):
            step(torch.zeros(size))
        with within():
            assert [float(step(torch.zeros(4))[0]) for _ in range(4)] == [1.0] * 4
        step(torch.zeros(8))
    return [(g.name, g.cause, g.calls) for g in watch.report().graphs]


def test_counts_are_the_same_where_the_private_functions_of_torch_are_other_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._dynamo import eval_frame

    expected = [("0/0", "first", 2), ("0/1", "shape", 6)]
    assert watched_calls() == expected
    resolve, asked = eval_frame._callback_from_stance, []

    def other(*given: Any) -> Any:
        asked.extend(given)
        return resolve(*given)

    monkeypatch.setattr(eval_frame, "_callback_from_stance", other)
    monkeypatch.setattr(compiling, "_uncovered", lambda compiled: compiled)
    assert watched_calls() == expected
    assert len([callback for callback in asked if callable(callback)]) == 8, "it was left alone"


def test_a_forced_backend_is_resolved_once_and_not_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call it would take longer than a small step."""
    from torch._dynamo import eval_frame

    resolve, asked = eval_frame._callback_from_stance, []

    def listening(callback: Any) -> Any:
        asked.append(callback)
        return resolve(callback)

    monkeypatch.setattr(eval_frame, "_callback_from_stance", listening)
    watched_calls()
    assert len([callback for callback in asked if callable(callback)]) == 1


def test_another_stance_within_a_watch_is_obeyed() -> None:
    eager = watched_calls(lambda: torch.compiler.set_stance("force_eager"))
    assert eager == [("0/0", "first", 2), ("0/1", "shape", 2)]


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
