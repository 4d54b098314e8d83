"""What is kept of a run when there are many: a few hundred bytes to an arm, enough for every table over runs.

scenario variant seed level queries digest metric hits_of expect      as in the summary
stack store     what was played, as in the manifest
arms.<arm>      status; why where it is unsupported; else value (of ``metric``), means, hits, valid_hits, p95_ms,
                held_bytes (None: not recorded), violated (violations by invariant), undecided (invariants that could
                not tell)
deltas.<arm>    mean, low, high of ``metric`` against clean
fixes           as in the summary
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.record.folder import RunReader
from testbed.run.sweep import Measure

_SAME = ("scenario", "variant", "seed", "level", "queries", "digest", "metric", "hits_of", "expect", "fixes")


def outcome(folder: Path) -> dict[str, Any]:
    """What is kept of the finished run in this folder."""
    reader = RunReader(folder)
    summary, settings = reader.summary, reader.manifest["settings"]
    metric = summary["metric"]
    return {
        **{name: summary[name] for name in _SAME},
        **{name: settings[name] for name in ("stack", "store")},
        "arms": {name: _arm(arm, metric) for name, arm in summary["arms"].items()},
        "deltas": {
            name: {bound: by_metric[metric][bound] for bound in ("mean", "low", "high")}
            for name, by_metric in summary["deltas"].items()
            if metric in by_metric
        },
    }


def _arm(arm: Mapping[str, Any], metric: str) -> dict[str, Any]:
    if arm["status"] != "ok":
        return {"status": arm["status"], "why": arm["why"]}
    return {
        **{name: arm[name] for name in ("status", "means", "hits", "valid_hits", "p95_ms")},
        "held_bytes": arm.get("held_bytes"),
        "value": arm["means"].get(metric),
        "violated": {v["invariant"]: v["violations"] for v in arm["verdicts"] if v["holds"] is False},
        "undecided": [v["invariant"] for v in arm["verdicts"] if v["holds"] is None],
    }


OUTCOME = Measure("outcome@3", outcome)
