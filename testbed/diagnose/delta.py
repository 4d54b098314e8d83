"""Paired differences between two arms: the same ask, served by two stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from testbed.core.errors import BrokenContract
from testbed.diagnose import significance
from testbed.diagnose.significance import Floats, Interval
from testbed.metrics.scores import AskScore


@dataclass(frozen=True, slots=True)
class Delta:
    """The mean difference of a metric between an arm and another, over the asks that both have scored.

    ``detectable`` is the smallest mean difference that this many asks would show at 80 % power.
    """

    metric: str
    interval: Interval
    detectable: float
    scored: int
    unscored: int


def series(scores: Sequence[AskScore], metric: str) -> Floats:
    """A metric over the stream: (n_asks,), NaN where unscored."""
    return np.array([score.value(metric) for score in scores], dtype=np.float64)


def paired(arm: Sequence[AskScore], base: Sequence[AskScore], metric: str) -> Floats:
    """Per-ask ``arm - base``: (n_asks,), NaN where one of the two is unscored.

    Raises
    ------
    BrokenContract : the two arms did not play the same asks.
    """
    if [s.op for s in arm] != [s.op for s in base]:
        raise BrokenContract(f"arms of {len(arm)} and {len(base)} asks did not play the same ops; nothing to pair")
    return series(arm, metric) - series(base, metric)


def delta(arm: Sequence[AskScore], base: Sequence[AskScore], metric: str, *, seed: int) -> Delta:
    pairs = paired(arm, base, metric)
    scored = ~np.isnan(pairs)
    known = pairs[scored]
    questions = significance.numbered([score.question for score, is_known in zip(arm, scored, strict=True) if is_known])
    interval, detectable = significance.difference(known, seed=seed, name=metric, questions=questions)
    return Delta(
        metric,
        interval,
        detectable,
        scored=len(known),
        unscored=len(pairs) - len(known),
    )


def windows(n_asks: int, n_windows: int) -> list[range]:
    """Positions in the stream, cut into windows of nearly equal size; at most one window per ask."""
    n = max(1, min(n_windows, n_asks))
    return [range(i * n_asks // n, (i + 1) * n_asks // n) for i in range(n)]


def curve(deltas: Floats, n_windows: int) -> list[float]:
    """Mean difference in each window of the stream; NaN where a window has no scored ask."""
    return [mean_known(deltas[w.start : w.stop]) for w in windows(len(deltas), n_windows)]


def mean_known(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else nan
