"""Whether a scenario still shows what it promises: a benchmark whose fault no longer bites is dead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from testbed.core.scenario import Expect
from testbed.metrics.scores import is_lower_better

CURED, NOT_CURED = 0.95, 0.50
# A stack without a layer is not quite the clean stack: an answer cache also repeats a right answer to a paraphrase that
# retrieval would have failed. So a bypass that gives back this much has cured.
CURED_BY_BYPASS = 0.90
BYPASSED = "faulty-without:"  # and the layer, or several with a plus
_ROUNDING = 1e-9


def check_expect(
    expect: Expect,
    scores: Mapping[str, float],
    verdicts: Mapping[str, Mapping[str, bool | None]],
    layers: Sequence[str],
) -> list[str]:
    """What is not as promised, in words; [] when all is.

    Parameters
    ----------
    scores : mean of ``expect.metric`` by arm; an arm that is missing did not run
    verdicts : outcome of each invariant by arm
    layers : those that an arm ``faulty-without:<layer>`` bypasses
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
    drop = fall(expect.metric, scores["clean"], scores["faulty"])
    if drop < expect.drop_at_least - _ROUNDING or drop <= 0:
        wrong.append(f"faulty: {expect.metric} fell by {drop:.4f}, expected at least {expect.drop_at_least:.4f}")
    if drop <= 0:
        return wrong
    return [*wrong, *_cures(expect, scores), *_blames(expect, scores, layers)]


def fall(metric: str, before: float, after: float) -> float:
    """How much worse ``after`` is."""
    return after - before if is_lower_better(metric) else before - after


def recovered(metric: str, clean: float, faulty: float, repaired: float) -> float | None:
    """Share of the drop that is gone; None when there was none."""
    drop = fall(metric, clean, faulty)
    return None if isnan(drop) or isnan(repaired) or drop <= 0 else fall(metric, repaired, faulty) / drop


def _cures(expect: Expect, scores: Mapping[str, float]) -> list[str]:
    out = []
    for fix in expect.cured_by:
        share = _recovered(expect.metric, scores, f"faulty+{fix}")
        if share is None:
            out.append(f"faulty+{fix}: did not run, or has no {expect.metric}")
        elif share < CURED - _ROUNDING:
            out.append(f"faulty+{fix}: recovered {share:.0%} of the drop, expected at least {CURED:.0%}")
    return out


def _blames(expect: Expect, scores: Mapping[str, float], layers: Sequence[str]) -> list[str]:
    out = []
    joint = expect.blame.split("+")
    for layer in dict.fromkeys([*([expect.blame] if expect.blame else []), *layers]):
        arm = f"faulty-without:{layer}"
        share = _recovered(expect.metric, scores, arm)
        if share is None:
            out.append(f"{arm}: did not run, or has no {expect.metric}")
        elif layer == expect.blame and share < CURED_BY_BYPASS - _ROUNDING:
            out.append(f"{arm}: recovered {share:.0%} of the drop, but the layer to blame should give back all of it")
        elif layer != expect.blame and share >= (CURED_BY_BYPASS if layer in joint else NOT_CURED) - _ROUNDING:
            out.append(f"{arm}: recovered {share:.0%} of the drop, but {expect.blame or 'no layer'} is to blame")
    return out


def _recovered(metric: str, scores: Mapping[str, float], arm: str) -> float | None:
    repaired = scores.get(arm)
    return None if repaired is None else recovered(metric, scores["clean"], scores["faulty"], repaired)
