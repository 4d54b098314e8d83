"""Each layer's share of a drop where several are at fault: from replays without every set of layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from testbed.core import coalitions
from testbed.core.scenario import without
from testbed.diagnose import blame, significance
from testbed.diagnose.delta import curve, series
from testbed.diagnose.judge import ArmJudgement
from testbed.diagnose.significance import Floats
from testbed.metrics.scores import is_lower_better
from testbed.run.plan import Plan

N_WINDOWS = 32


def measured(arms: Mapping[str, ArmJudgement], plan: Plan, metric: str) -> dict[str, Any]:
    """The shares, as a JSON value.

    ==========  ======================================================================================================
    drop        clean less faulty, over the asks that all of the arms have scored
    rest        what of it is no layer's: clean less the stack without any; ``sum(shares) + rest == drop``
    shares      ``layer share low high error``, in units of the metric, greatest first; an interval where they are
                exact, the standard error of the estimate where they are sampled
    windows     by layer, the share in each window of the stream; ops, asks: by layer, each ask's, None where unscored
    repair      layers, worse, left: the fewest layers whose bypass leaves the fewest asks worse than in the clean arm
    exact       False beyond five layers
    arms        those that ran for the shares alone
    why         why there are none
    ==========  ======================================================================================================
    """
    layers = _bypassed(plan)
    names = {s: without(plan.variant, [n for n in layers if n in s]).name for s in coalitions.subsets(layers)}
    gone = [n for n in layers if names[frozenset({n})] not in arms]
    layers = [n for n in layers if n not in gone]  # a stack that lacks a layer plays without it anyhow
    wanted = coalitions.needed(layers, seed=plan.settings.seed)
    extra = [a.name for a in plan.arms if len(a.bypass) > 1 and a.name != f"faulty-without:{plan.variant.expect.blame}"]
    out: dict[str, Any] = {
        "layers": layers,
        "arms": extra,
        "shares": [],
        "exact": len(layers) <= coalitions.EXACT_UP_TO,
    }
    missing = [names[s] for s in wanted if names[s] not in arms] + ["clean"] * ("clean" not in arms)
    if missing:
        return out | {"why": f"arm {missing[0]} did not run"}
    sign = -1 if is_lower_better(metric) else 1
    found = {s: sign * series(arms[names[s]].scores, metric) for s in wanted}
    clean = sign * series(arms["clean"].scores, metric)
    known = ~np.isnan(np.stack([clean, *found.values()])).any(axis=0)
    if not known.any():
        return out | {"why": f"no ask has {metric} in all arms"}
    drop = float(clean[known].mean() - found[frozenset()][known].mean())
    told = _exact(found, layers, known, plan) if out["exact"] else _sampled(found, layers, known, plan)
    told["shares"].sort(key=lambda s: (-s["share"], layers.index(s["layer"])))
    rest = drop - sum(s["share"] for s in told["shares"])
    repair = blame.smallest_repair(clean[known], {s: values[known] for s, values in found.items()}, layers)._asdict()
    ops = [score.op for score in arms["faulty"].scores]
    all_of_it = {"drop": drop, "rest": rest, "repair": repair, "scored": int(known.sum()), "ops": ops, "why": ""}
    return out | all_of_it | told


def _bypassed(plan: Plan) -> list[str]:
    """In the stack's own order, which names the arms; they may be played in any."""
    bypassed = {layer for arm in plan.arms for layer in arm.bypass}
    return [layer for layer in plan.layers if layer in bypassed]


def _exact(found: Mapping[frozenset[str], Floats], layers: list[str], known: Any, plan: Plan) -> dict[str, Any]:
    by_ask = blame.shapley_by_ask(found, layers)
    shares, windows = [], {}
    for layer, values in by_ask.items():
        values[~known] = np.nan
        interval = significance.interval(values[known], seed=plan.settings.seed, name="shapley")
        shares.append(
            {"layer": layer, "share": interval.mean, "low": interval.low, "high": interval.high, "error": None}
        )
        windows[layer] = curve(values, N_WINDOWS)
    return {"shares": shares, "windows": windows, "asks": {layer: list(v) for layer, v in by_ask.items()}}


def _sampled(found: Mapping[frozenset[str], Floats], layers: list[str], known: Any, plan: Plan) -> dict[str, Any]:
    estimated = blame.sampled_shapley(lambda s: float(found[s][known].mean()), layers, seed=plan.settings.seed)
    shares = [
        {"layer": layer, "share": e.share, "low": None, "high": None, "error": e.error}
        for layer, e in estimated.items()
    ]
    return {"shares": shares, "windows": {}, "asks": {}}
