from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput, Unavailable
from testbed.run import compile_report

ROOT = Path(__file__).resolve().parents[3]


def test_a_storm_is_a_table_of_exact_counts() -> None:
    pytest.importorskip("torch", reason="needs the runner extra")
    rows = json.loads(compile_report.text(storm=True, as_json=True))
    assert [(r["way"], r["graphs"], r["hits"], r["eager"]) for r in rows] == [
        ("fixed", 8, 8, 64),  # torch's limit: the other 32 lengths run uncompiled
        ("automatic", 2, 78, 0),
        ("buckets", 4, 76, 0),
    ]
    assert rows[0]["recompiles"] == {"shape": 7}


def test_a_storm_generates_no_code_that_two_processes_could_share() -> None:
    with pytest.raises(InvalidInput, match="--storm and --twice"):
        compile_report.text(storm=True, twice=True)


def test_without_torch_one_line_names_the_extra() -> None:
    code = "import sys; sys.modules['torch'] = None; from testbed.cli import main; main(['compile-report', '--storm'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert done.stderr == "testbed: compile-report needs torch; pip install 'rag-testbed[runner]'\n"


def test_without_a_compiler_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Unavailable, match=r"C\+\+ compiler"):
        compile_report.text(twice=True)
