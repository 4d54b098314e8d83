"""Whether a scenario still shows what it promises: a benchmark whose fault no longer bites is dead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, inf, isnan
from typing import NamedTuple

from testbed.core.scenario import Expect
from testbed.metrics.scores import is_lower_better

CURED, NOT_CURED = 0.95, 0.50
# A stack without a layer is not quite the clean stack: an answer cache also repeats a right answer to a paraphrase that
# retrieval would have failed. So a bypass that gives back this much has cured (the least of all variants over seeds 1
# to 10 is 0.88), and a fix that costs those hits need not give back more than the bypass does.
CURED_BY_BYPASS = 0.85
NOT_ALONE = 0.90  # of two layers that are to blame together, one alone gives back less than this
BYPASSED = "faulty-without:"  # and the layer, or several with a plus
_ROUNDING = 1e-9


class Fall(NamedTuple):
    """How much worse an arm's mean is than the clean arm's, and between what bounds that may be chance."""

    least: float
    told: float
    most: float


def check_expect(
    expect: Expect,
    scores: Mapping[str, float],
    verdicts: Mapping[str, Mapping[str, bool | None]],
    layers: Sequence[str],
    leeway: Mapping[str, tuple[float, float]] | None = None,
) -> list[str]:
    """What is not as promised, in words; [] when all is.

    Parameters
    ----------
    scores : mean of ``expect.metric`` by arm; an arm that is missing did not run
    verdicts : outcome of each invariant by arm
    layers : those that an arm ``faulty-without:<layer>`` bypasses
    leeway : by arm, how much less and how much more than told it may really have fallen; a promise is then broken only
        where it is within all of that. None: chance has no part in the scores
    """
    wrong = [f"clean: violates {invariant}" for invariant, holds in verdicts.get("clean", {}).items() if holds is False]
    wrong += [
        f"faulty: does not violate {invariant}"
        for invariant in expect.violates
        if verdicts.get("faulty", {}).get(invariant) is not False
    ]
    missing = [arm for arm in ("clean", "faulty") if isnan(scores.get(arm, float("nan")))]
    if missing:
        return [*wrong, *(f"{arm}: has no {expect.metric}" for arm in missing)]
    falls = _falls(expect.metric, scores, leeway or {})
    drop = falls["faulty"]
    if drop.most < expect.drop_at_least - _ROUNDING or drop.most <= 0:
        wrong.append(f"faulty: {expect.metric} fell by {drop.told:.4f}, expected at least {expect.drop_at_least:.4f}")
    if drop.told <= 0:
        return wrong
    return [*wrong, *_cures(expect, falls), *_blames(expect, falls, layers)]


def _falls(metric: str, scores: Mapping[str, float], leeway: Mapping[str, tuple[float, float]]) -> dict[str, Fall]:
    out = {}
    for arm, score in scores.items():
        told = fall(metric, scores["clean"], score)
        less, more = leeway.get(arm, (0.0, 0.0))
        out[arm] = Fall(told - less, told, told + more)
    return out


def fall(metric: str, before: float, after: float) -> float:
    """How much worse ``after`` is."""
    return after - before if is_lower_better(metric) else before - after


def recovered(metric: str, clean: float, faulty: float, repaired: float) -> float | None:
    """Share of the drop that is gone; None when there was none."""
    drop = fall(metric, clean, faulty)
    return None if isnan(drop) or isnan(repaired) or drop <= 0 else fall(metric, repaired, faulty) / drop


def _cures(expect: Expect, falls: Mapping[str, Fall]) -> list[str]:
    out = []
    without = _recovered(falls, f"{BYPASSED}{expect.blame}")
    attainable = 1.0 if without is None else min(1.0, max(without.least, CURED_BY_BYPASS))
    for fix in expect.cured_by:
        share = _recovered(falls, f"faulty+{fix}")
        if share is None:
            out.append(f"faulty+{fix}: did not run, or has no {expect.metric}")
        elif share.most < expect.recovers * attainable - _ROUNDING:
            told, least = floor(100 * share.told + _ROUNDING), ceil(100 * expect.recovers * attainable - _ROUNDING)
            out.append(f"faulty+{fix}: recovered {told}% of the drop, expected at least {least}%")  # 94.8 is not 95
    return out


def _blames(expect: Expect, falls: Mapping[str, Fall], layers: Sequence[str]) -> list[str]:
    out = []
    joint = expect.blame.split("+")
    for layer in dict.fromkeys([*([expect.blame] if expect.blame else []), *layers]):
        arm = f"{BYPASSED}{layer}"
        share = _recovered(falls, arm)
        if share is None:
            out.append(f"{arm}: did not run, or has no {expect.metric}")
            continue
        recovered = f"{arm}: recovered {share.told:.0%} of the drop, but"
        if layer == expect.blame and share.most < CURED_BY_BYPASS - _ROUNDING:
            out.append(f"{recovered} the layer to blame should give back all of it")
        elif layer != expect.blame and share.least >= (NOT_ALONE if layer in joint else NOT_CURED) - _ROUNDING:
            out.append(f"{recovered} {expect.blame or 'no layer'} is to blame")
    return out


def _recovered(falls: Mapping[str, Fall], arm: str) -> Fall | None:
    """The share of the drop that is gone, between its bounds; None where an arm has no score."""
    drop, left = falls["faulty"], falls.get(arm)
    if left is None or isnan(left.told):
        return None
    if drop.least <= 0:  # there may have been no drop at all, and so any share of it
        return Fall(-inf, 1 - left.told / drop.told, inf)
    corners = [1 - part / whole for part in (left.least, left.most) for whole in (drop.least, drop.most)]
    return Fall(min(corners), 1 - left.told / drop.told, max(corners))
