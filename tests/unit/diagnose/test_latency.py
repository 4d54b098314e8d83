from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.diagnose.latency import findings


def report(path: Path, fast_s: float, slow_s: float, cpu: str = "a cpu") -> str:
    rows = [{"fullname": name, "stats": {"min": best, "mean": 9.0}} for name, best in (("f", fast_s), ("s", slow_s))]
    machine = {"system": "Linux", "machine": "x86_64", "cpu": {"brand_raw": cpu, "count": 4}, "node": path.stem}
    path.write_text(json.dumps({"machine_info": machine, "benchmarks": rows}))
    return str(path)


def test_what_takes_more_than_half_as_long_again_fails_by_its_best_round(tmp_path: Path) -> None:
    found = findings(report(tmp_path / "a", 1.0, 1.0), report(tmp_path / "b", 1.4, 2.0))
    assert [(f.outcome, f.text.split()[0]) for f in found] == [("failed", "s"), ("noted", "2")]
    assert "2.00 times as long" in found[0].text
    assert "1.67 times as long (geometric mean)" in found[1].text


def test_another_class_of_machine_is_not_compared(tmp_path: Path) -> None:
    (found,) = findings(report(tmp_path / "a", 1.0, 1.0), report(tmp_path / "b", 9.0, 9.0, cpu="another"))
    assert found.outcome == "noted" and "another class of machine" in found.text


def test_nothing_is_asked_for_by_nothing_and_one_file_is_not_enough(tmp_path: Path) -> None:
    assert findings("", "") == []
    with pytest.raises(InvalidInput, match="--bench-baseline is not given"):
        findings("", report(tmp_path / "b", 1.0, 1.0))
    (tmp_path / "x").write_text("[]")
    with pytest.raises(InvalidInput, match="pytest --benchmark-json"):
        findings(str(tmp_path / "x"), str(tmp_path / "b"))
