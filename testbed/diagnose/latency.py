"""Latencies, which only mean something on one class of machine: two files of pytest-benchmark, as ratios."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.diagnose.findings import Finding

# A benchmark is slower when even its best round is: other programs on the machine make rounds slower, never faster.
SLOWER = 1.5


def findings(baseline: str, now: str) -> list[Finding]:
    """What got slower than SLOWER times; a note, and no comparison, where the machines are not of one class.

    Parameters
    ----------
    baseline, now : files that ``pytest --benchmark-json`` wrote; both empty asks for nothing
    """
    if not baseline and not now:
        return []
    if not baseline or not now:
        missing = "--bench-baseline" if now else "--timings"
        raise InvalidInput(f"{missing} is not given; two files of pytest-benchmark are compared, the older and the new")
    then, today = _read(Path(baseline)), _read(Path(now))
    if machine(then) != machine(today):
        text = f"latencies were not compared: {machine(then)} is another class of machine than {machine(today)}"
        return [Finding("latency", "noted", "", text)]
    before, after = _best(then), _best(today)
    ratios = {name: after[name] / before[name] for name in sorted(before.keys() & after.keys())}
    if not ratios:
        return [Finding("latency", "unknown", "", f"{baseline} and {now} have no benchmark in common")]
    slower = [
        Finding("latency", "failed", "", f"{name} takes {ratio:.2f} times as long, more than {SLOWER:g} times")
        for name, ratio in ratios.items()
        if ratio > SLOWER
    ]
    overall = f"{len(ratios)} benchmarks take {geometric_mean(ratios.values()):.2f} times as long (geometric mean)"
    return [*slower, Finding("latency", "noted", "", overall)]


def machine(report: dict[str, Any]) -> str:
    """The class of machine, not the machine."""
    info = report["machine_info"]
    cpu = info.get("cpu", {})
    return f"{info.get('system')} {info.get('machine')}, {cpu.get('brand_raw', '?')} x {cpu.get('count', '?')}"


def _best(report: dict[str, Any]) -> dict[str, float]:
    return {row["fullname"]: float(row["stats"]["min"]) for row in report["benchmarks"]}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path}: not a file of pytest-benchmark: {error}") from error
    if not isinstance(found, dict) or not {"machine_info", "benchmarks"} <= found.keys():
        raise InvalidInput(f"{path}: not a file of pytest-benchmark; pytest --benchmark-json={path} writes one")
    return found
