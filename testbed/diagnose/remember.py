"""What is remembered of a run, so that a gate can hold later ones to it: a cell of its scenario's baseline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import nan
from typing import Any

from testbed.core.scenario import Expect
from testbed.diagnose.asks import Asks
from testbed.diagnose.expectations import CURED, check_expect
from testbed.metrics.scores import is_lower_better
from testbed.record import baseline
from testbed.record.baseline import ArmRecord, Cell
from testbed.record.folder import RunReader

# Where chance has no part in a difference, nothing is too small to be told.
TOLERANCE, NO_TOLERANCE = 0.02, 0.0
NEVER_WORSE = ("leak rate", "stale rate")


def cell_of(reader: RunReader, *, tolerance: Mapping[str, float] | None = None, accepted: str = "") -> Cell:
    """The cell that holds later runs to this one. ``tolerance``: by metric, what an older cell was edited to."""
    asks, summary, described = Asks(reader), reader.summary, reader.manifest
    digests = described["arm_digests"]
    clean = {m: baseline.packed(list(v)) for m, v in asks.gated("clean").items()} if "clean" in digests else {}
    arms = {}
    for arm in reader.arms:
        row = summary["arms"][arm]
        if row["status"] != "ok":
            arms[arm] = ArmRecord(row["status"], digests[arm])
            continue
        series = {m: baseline.packed(list(v)) for m, v in asks.gated(arm).items()} if is_gated(arm) else {}
        arms[arm] = ArmRecord(
            "ok",
            digests[arm],
            holds(row),
            {m: None if v is None else round(v, 6) for m, v in row["means"].items()},
            series if arm == "clean" else baseline.shared(series, clean),
        )
    metrics = sorted({m for record in arms.values() for m in record.series})
    deterministic = bool(described["settings"].get("deterministic"))
    return Cell(
        variant=described["variant"],
        seed=described["seed"],
        level=described["level"],
        dataset=described["settings"].get("dataset", ""),
        queries=described["settings"]["queries"],
        stack=described["settings"]["stack"],
        store=described["settings"]["store"],
        deterministic=deterministic,
        made_from=made_from(described),
        digest=reader.digest,
        promise=tuple(broken_promises(summary, deterministic=deterministic)),
        tolerance={m: usual_tolerance(m, deterministic) for m in metrics} | dict(tolerance or {}),
        arms=arms,
        accepted=accepted,
    )


def is_gated(arm: str) -> bool:
    """Whether an arm's metrics may not fall: a faulty stack is there to be bad, and its cures must not get worse."""
    return arm == "clean" or arm.startswith(("clean+", "faulty+"))


def usual_tolerance(metric: str, deterministic: bool) -> float:
    return NO_TOLERANCE if deterministic or metric in NEVER_WORSE else TOLERANCE


def holds(row: Mapping[str, Any]) -> dict[str, bool | None]:
    return {v["invariant"]: v["holds"] for v in row.get("verdicts", ())}


def made_from(described: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same for two runs to be the same experiment. The last two are known once a run is recorded."""
    files = described.get("files", {})
    known = {
        "scenario": described["scenario_digest"],
        "data": described["data"],
        "metrics": described["metrics"],
        "questions": files.get("ops.jsonl"),
        "truth": files.get("gold.jsonl"),
    }
    return {name: value for name, value in known.items() if value is not None}


def broken_promises(summary: Mapping[str, Any], *, deterministic: bool = True) -> list[str]:
    """What the scenario promises and this run does not show, whether or not runs of its size are held to it.

    Of a stack that is not deterministic, only what chance does not explain.
    """
    told = summary["expect"]
    expect = Expect(
        summary.get("metric", told["metric"]),
        told["drop_at_least"],
        told["blame"],
        tuple(told["cured_by"]),
        tuple(told["violates"]),
        told.get("recovers", CURED),
    )
    ran = {arm: row for arm, row in summary["arms"].items() if row["status"] == "ok"}
    means = {arm: nan if (v := row["means"].get(expect.metric)) is None else v for arm, row in ran.items()}
    layers = [arm.removeprefix("faulty-without:") for arm in summary["order"] if arm.startswith("faulty-without:")]
    chance = None if deterministic else _chance(expect.metric, summary["deltas"])
    return check_expect(expect, means, {arm: holds(row) for arm, row in ran.items()}, layers, chance)


def without_numbers(text: str) -> str:
    """What a promise says, whatever its figures are today."""
    return re.sub(r"\d[\d.]*", "#", text)


def _chance(metric: str, deltas: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
    """How much less and how much more than its mean says each arm may have fallen: its 95 % interval against clean."""
    out = {}
    for arm, by_metric in deltas.items():
        found = by_metric.get(metric)
        if found is None or any(found.get(bound) is None for bound in ("mean", "low", "high")):
            continue
        below, above = found["mean"] - found["low"], found["high"] - found["mean"]
        out[arm] = (below, above) if is_lower_better(metric) else (above, below)
    return out
