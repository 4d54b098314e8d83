"""The figures of a run as values: what the page draws and what the paper's charts draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from testbed.metrics.scores import is_lower_better
from testbed.report.verdict import hits_lost

Rates = tuple[float | None, ...]
OUTCOMES = ("fresh", "stale", "foreign", "wrong", "unknown", "miss")


class Heat(NamedTuple):
    """Rates by layer over windows of the stream, outermost layer first, and the mean difference to the clean arm.

    ``lost`` is how much worse than clean each window is (> 0 is worse), whichever way the metric points; ``changes``
    are windows at whose start it changes its level. ``asks`` holds the first and the last question of each window.
    """

    hits: Mapping[str, Rates]
    valid: Mapping[str, Rates]
    lost: Rates
    changes: tuple[int, ...]
    asks: tuple[tuple[int, int], ...]


class Spread(NamedTuple):
    """What the layers served in each window, by layer and outcome, and the entries poisoned up to its end."""

    outcomes: Mapping[str, Mapping[str, tuple[int, ...]]]
    poisoned: tuple[int, ...]


class Share(NamedTuple):
    """A layer, the share of the drop that is gone without it with its interval, or why that is not known."""

    layer: str
    share: float | None
    low: float | None
    high: float | None
    why: str


class Point(NamedTuple):
    """An arm on the plane of what is left of the pollution against the hit rate that was paid for it."""

    label: str
    hits_lost: float
    left: float
    low: float
    high: float


def heat(summary: Mapping[str, Any]) -> Heat | None:
    found = summary["heatmap"]
    if not found:
        return None
    sign = 1 if is_lower_better(summary["metric"]) else -1
    n = len(found["delta"])
    total = max(int(summary["queries"]), n)
    return Heat(
        {layer: tuple(found["hits"][layer]) for layer in found["layers"]},
        {layer: tuple(found["valid_hits"][layer]) for layer in found["layers"]},
        tuple(None if value is None else sign * value + 0.0 for value in found["delta"]),
        tuple((summary.get("pollution") or {}).get("changes", ())),
        tuple((i * total // n + 1, (i + 1) * total // n) for i in range(n)),
    )


def spread(summary: Mapping[str, Any]) -> Spread | None:
    """Layers that served something in their order; tiers of a layer are left to the layer."""
    found = summary.get("pollution")
    if not found:
        return None
    outcomes = {
        layer: {name: tuple(counts.get(name, ())) for name in OUTCOMES}
        for layer, counts in found["outcomes"].items()
        if "." not in layer and any(any(values) for name, values in counts.items() if name != "miss")
    }
    return Spread(outcomes, tuple(found["poisoned"]))


def blame(summary: Mapping[str, Any]) -> list[Share]:
    return [Share(b["layer"], b["share"], b.get("low"), b.get("high"), b.get("why", "")) for b in summary["blame"]]


def shapley(summary: Mapping[str, Any]) -> list[Share]:
    """Each layer's part of the drop, in units of the metric, where every set of layers was left out."""
    return [Share(s["layer"], s["share"], *_ends(s), "") for s in (summary.get("shapley") or {}).get("shares", ())]


def _ends(share: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """The interval, or two standard errors of an estimate to both sides."""
    if share["low"] is None and share["error"] is not None:
        return share["share"] - 2 * share["error"], share["share"] + 2 * share["error"]
    return share["low"], share["high"]


def published(summary: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The best match of each layer by the published method, most confident first."""
    best: dict[str, Mapping[str, Any]] = {}
    for match in summary["published_attribution"]:
        if match["layer"] not in best or match["confidence"] > best[match["layer"]]["confidence"]:
            best[match["layer"]] = match
    return list(best.values())


def plane(summary: Mapping[str, Any]) -> list[Point]:
    """The faulty arm, and with each fix; arms whose hit rate or difference is not known are left out."""
    arms = [("no fix", "faulty"), *((f["fix"], f"faulty+{f['fix']}") for f in summary["fixes"])]
    points = [_point(summary, label, arm) for label, arm in arms]
    return [point for point in points if point is not None]


def _point(summary: Mapping[str, Any], label: str, arm: str) -> Point | None:
    lost = hits_lost(summary, arm)
    delta = summary["deltas"].get(arm, {}).get(summary["metric"])
    if lost is None or not delta or any(delta[name] is None for name in ("mean", "low", "high")):
        return None
    if is_lower_better(summary["metric"]):
        return Point(label, lost, delta["mean"], delta["low"], delta["high"])
    return Point(label, lost, 0.0 - delta["mean"], 0.0 - delta["high"], 0.0 - delta["low"])


def known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
