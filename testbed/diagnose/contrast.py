"""One arm against another on the same asks: by how much it differs, how sure that is, and what could not be seen.

Used for two runs side by side and by the gate, so that what a comparison calls significant is what a gate fails on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from testbed.diagnose import significance
from testbed.diagnose.significance import Floats, Interval, Questions
from testbed.metrics.scores import is_lower_better

RESAMPLES = 4000
ALPHA = 0.05
# Values that are the same but for the last bits of a sum.
SAME = 1e-9


class Name(NamedTuple):
    """What is compared: a metric of an arm. ``arm`` reads ``a -> b`` where the two sides are different arms."""

    arm: str
    metric: str


class Pair(NamedTuple):
    """A series on both sides, ask by ask: (n_asks,), NaN where unscored."""

    a: Floats
    b: Floats


class Contrast(NamedTuple):
    """b against a, over the asks that both have scored.

    ``interval`` is the mean of b - a with its 95 % bounds. ``effect`` is that mean in units of the standard deviation
    of single differences. ``wins`` are asks at which b is better, whichever way is better for the metric.
    ``detectable`` is the smallest mean difference that this many asks would show at 80 % power, were the differences
    spread as they are here. ``p`` is adjusted for all that was compared in the scenario, ``p_holm`` for the scenarios
    too; NaN where there was nothing to compare.
    """

    name: Name
    a: float
    b: float
    interval: Interval
    effect: float
    wins: int
    ties: int
    losses: int
    detectable: float
    scored: int
    unscored: int
    p: float = nan
    p_holm: float = nan

    @property
    def loss(self) -> float:
        """How much worse b is: positive is worse, whichever way is better."""
        return self.interval.mean if is_lower_better(self.name.metric) else -self.interval.mean

    @property
    def significant(self) -> bool:
        return self.p_holm < ALPHA


def contrasts(
    runs: Sequence[Mapping[Name, Pair]], *, seed: int, name: str, questions: Sequence[Questions] | None = None
) -> list[Contrast]:
    """Every series of one scenario, over one run or more (seeds).

    Parameters
    ----------
    runs : the pairs of each run; only names that all runs have are compared
    seed, name : draw the resamples; the same ones for all series of a scenario
    questions : which asks of each run are of the same question (``significance.resampled``); None: not known
    """
    names = [n for n in runs[0] if all(n in run for run in runs)]
    if not names:
        return []
    deltas = [np.stack([run[n].b - run[n].a for n in names]) for run in runs]
    everything = np.concatenate(deltas, axis=1)
    observed = np.array([_mean(row) for row in everything])
    # Where no ask differs there is no doubt either, and nothing to resample.
    moves = np.array([bool((np.abs(row[~np.isnan(row)]) > SAME).any()) for row in everything])
    means = np.zeros((RESAMPLES, len(names)))
    p_values, wider = np.where(np.isnan(observed), nan, 1.0), np.ones(len(names))
    if moves.any():
        means[:, moves], wider[moves] = significance.resampled(
            [run[moves] for run in deltas], seed=seed, name=name, resamples=RESAMPLES, questions=questions
        )
        p_values[moves] = significance.largest_of_all_p(observed[moves], means[:, moves], wider[moves])
    return [
        _contrast(n, [run[n] for run in runs], row, float(observed[i]), means[:, i], float(wider[i]))._replace(
            p=float(p_values[i])
        )
        for i, (n, row) in enumerate(zip(names, everything, strict=True))
    ]


def over_scenarios(found: Mapping[str, Sequence[Contrast]]) -> dict[str, list[Contrast]]:
    """Adjust for the number of scenarios that were looked at (Holm), one test a scenario: its most certain difference.

    A scenario in which nothing differs is a test too: it was looked at.
    """
    least = {name: min((c.p for c in rows if not isnan(c.p)), default=1.0) for name, rows in found.items()}
    adjusted = dict(zip(least, significance.holm(list(least.values())), strict=True))
    return {
        name: [c._replace(p_holm=_scaled(c.p, least[name], adjusted[name])) for c in rows]
        for name, rows in found.items()
    }


def _scaled(p: float, least: float, adjusted: float) -> float:
    """The scenario's adjustment, applied to a p-value that is not its least one."""
    return nan if isnan(p) else max(adjusted, min(1.0, p * adjusted / least))


def _contrast(name: Name, pairs: Sequence[Pair], deltas: Floats, mean: float, means: Floats, wider: float) -> Contrast:
    known = deltas[~np.isnan(deltas)]
    a, b = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    better = -known if is_lower_better(name.metric) else known
    spread = float(known.std()) if len(known) else nan
    resampled = means[~np.isnan(means)]
    return Contrast(
        name=name,
        a=_mean(a[~np.isnan(deltas)]),
        b=_mean(b[~np.isnan(deltas)]),
        interval=significance.around(mean, resampled, wider) if len(known) else Interval(nan, nan, nan),
        effect=mean / spread if spread > SAME else 0.0 if abs(mean) <= SAME else nan,
        wins=int((better > SAME).sum()),
        ties=int((np.abs(better) <= SAME).sum()),
        losses=int((better < -SAME).sum()),
        detectable=significance.smallest_seen(resampled, wider) if len(known) else nan,
        scored=len(known),
        unscored=len(deltas) - len(known),
    )


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else nan
