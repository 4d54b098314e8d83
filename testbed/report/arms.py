"""The arms of a run as one table: what each arm's users got."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.metrics.faithfulness import FAITHFUL, TRUE
from testbed.metrics.grounding import ANSWER_CONTAINMENT, LEXICAL_GROUNDING
from testbed.report.columns import Column, number

# Scores in the order in which they are shown, under what name, and which are left out first on a narrow terminal.
SHOWN = (
    ("MRR@5", "MRR@5", 0),
    (FAITHFUL, "faithful", 3),
    (TRUE, "true", 0),
    (ANSWER_CONTAINMENT, "contains", 0),
    (LEXICAL_GROUNDING, "grounding*", 3),
)
GROUNDING_NOTE = "* share of the answer's words that its sources hold: not faithfulness, this data set has no ledger"


def columns(summary: Mapping[str, Any]) -> list[Column]:
    """One row an arm. ``delta`` stands right of the metric that the scenario is about, against the clean arm."""
    aside = (summary.get("shapley") or {}).get("arms", ())  # they are there for the shares alone
    arms: dict[str, Mapping[str, Any]] = {n: summary["arms"][n] for n in summary["order"] if n not in aside}
    out = [Column("arm", tuple(arms), number=False)]
    for metric, heading, rank in SHOWN:
        if any(metric in arm.get("means", ()) for arm in arms.values()):
            out.append(Column(heading, tuple(number(_mean(arm, metric)) for arm in arms.values()), rank))
            if metric == summary["metric"]:
                out.append(Column("delta", tuple(_delta(summary, name, metric) for name in arms), 2))
    if summary["metric"] not in [metric for metric, _, _ in SHOWN]:
        metric = summary["metric"]
        out.append(Column(metric, tuple(number(_mean(arm, metric)) for arm in arms.values())))
        out.append(Column("delta", tuple(_delta(summary, name, metric) for name in arms), 2))
    out += [
        Column("valid hits", tuple(number(arm.get("valid_hits")) for arm in arms.values())),
        Column("hits", tuple(number(arm.get("hits")) for arm in arms.values()), 4),
        Column("p95 ms", tuple(number(arm.get("p95_ms"), 1) for arm in arms.values()), 5),
        Column("invariants", tuple(map(verdicts, arms.values())), number=False, short=tuple(map(count, arms.values()))),
    ]
    return out


def verdicts(arm: Mapping[str, Any]) -> str:
    """``hold``, which ones are violated, or that some could not be told."""
    if arm["status"] != "ok":
        return f"unsupported: {arm.get('why', '')}"
    broken, unknown = named(arm, False), named(arm, None)
    if broken:
        return f"{', '.join(broken)} VIOLATED"
    return f"hold; unknown: {', '.join(unknown)}" if unknown else "hold"


def count(arm: Mapping[str, Any]) -> str:
    """The same where there is no room for names."""
    if arm["status"] != "ok":
        return "unsupported"
    broken, unknown = named(arm, False), named(arm, None)
    if broken:
        return f"{len(broken)} VIOLATED"
    return f"hold, {len(unknown)} ?" if unknown else "hold"


def named(arm: Mapping[str, Any], holds: bool | None) -> list[str]:
    return [v["invariant"] for v in arm["verdicts"] if v["holds"] is holds]


def _mean(arm: Mapping[str, Any], metric: str) -> float | None:
    value: float | None = arm.get("means", {}).get(metric)
    return value


def _delta(summary: Mapping[str, Any], arm: str, metric: str) -> str:
    found = summary["deltas"].get(arm, {}).get(metric)
    return number(found["mean"], signed=True) if found else ""
