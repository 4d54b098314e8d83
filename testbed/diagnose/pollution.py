"""How pollution spreads over a run: what was served when, when it could have been noticed, how long it stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from testbed.diagnose.delta import windows
from testbed.diagnose.significance import Floats
from testbed.metrics.scores import AskScore
from testbed.metrics.serving import BAD, Outcome, Serving

OUTCOMES: tuple[Outcome, ...] = ("fresh", "stale", "foreign", "wrong", "unknown", "miss")
# Page's test on the loss per ask: a drift of this much is tolerated, and this much excess raises the alarm.
TOLERATED, ALARM = 0.05, 3.0


@dataclass(frozen=True, slots=True)
class Pollution:
    """One arm over time; times in logical seconds, None where it never happened.

    Parameters
    ----------
    outcomes : by layer and outcome, how many lookups in each window of the stream
    poisoned : by window, how many distinct entries have been poisoned up to its end, in all layers
    blast_radius : the most entries that were made from one poisoned entry
    first_bad_s : when the first foreign, stale or wrong value was served
    time_to_detect_s : from then until the loss per ask raises an alarm (see ``alarm``)
    time_to_clean_s : from the last new poisoned entry until the last bad value was served
    changes : windows at whose start the difference to the clean arm changes its level
    """

    outcomes: Mapping[str, Mapping[str, tuple[int, ...]]]
    poisoned: tuple[int, ...]
    blast_radius: int
    first_bad_s: float | None
    time_to_detect_s: float | None
    time_to_clean_s: float | None
    changes: tuple[int, ...]


def spread(
    serving: Serving, asks: Sequence[AskScore], losses: Floats, curve: Sequence[float], n_windows: int = 32
) -> Pollution:
    """Read the pollution of an arm off what its layers served.

    Parameters
    ----------
    asks : the scored asks, in stream order
    losses : (n_asks,) how much worse than clean each ask was scored; NaN where unscored
    curve : the mean difference by window
    """
    at_s = {ask.op: ask.at_s for ask in asks}
    window_of = {asks[i].op: number for number, w in enumerate(windows(len(asks), n_windows)) for i in w}
    n = len(windows(len(asks), n_windows))
    counts: dict[str, dict[str, list[int]]] = {}
    for served in serving.lookups:
        by_outcome = counts.setdefault(served.layer, {name: [0] * n for name in OUTCOMES})
        by_outcome[served.outcome][window_of[served.op]] += 1
    poisoned = np.zeros(n, dtype=int)
    for op, _ in serving.poisonings:
        poisoned[window_of[op] :] += 1
    bad = [at_s[served.op] for served in serving.lookups if served.outcome in BAD]
    noticed = alarm(losses)
    first = bad[0] if bad else None
    last_new = at_s[serving.poisonings[-1][0]] if serving.poisonings else None
    return Pollution(
        {layer: {name: tuple(c) for name, c in found.items()} for layer, found in counts.items()},
        tuple(int(x) for x in poisoned),
        max(serving.derived.values(), default=0),
        first,
        None if first is None or noticed is None else max(0.0, asks[noticed].at_s - first),
        None if not bad or last_new is None else max(0.0, bad[-1] - last_new),
        tuple(change_points(curve)),
    )


def alarm(losses: Floats) -> int | None:
    """Position of the ask at which the cumulated loss, less what is tolerated, first exceeds the threshold.

    References
    ----------
    Page, "Continuous Inspection Schemes", 1954.
    """
    excess = 0.0
    for i, loss in enumerate(losses):
        if not np.isnan(loss):
            excess = max(0.0, excess + float(loss) - TOLERATED)
            if excess > ALARM:
                return i
    return None


def change_points(values: Sequence[float], least: int = 3) -> list[int]:
    """Starts of new levels in a noisy step curve, by the best partition under a penalty for each step.

    Parameters
    ----------
    values : NaN is bridged by the value before it
    least : shortest level

    References
    ----------
    Jackson et al., "An algorithm for optimal partitioning of data on an interval", 2005; the penalty is that of the
    Bayesian information criterion, with the noise taken from the differences of neighbours.
    """
    known = _bridged(np.array(values, dtype=np.float64))
    n = len(known)
    if n < 2 * least:
        return []
    # Rounding errors of a flat curve must not pass for steps.
    noise = max(float(np.median(np.abs(np.diff(known)))) / 0.954, 1e-3)
    penalty = 3.0 * noise**2 * log(n)
    sums, squares = np.concatenate([[0.0], np.cumsum(known)]), np.concatenate([[0.0], np.cumsum(known**2)])

    def cost(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return float(squares[end] - squares[start] - total * total / (end - start))

    best, came_from = [0.0] + [float("inf")] * n, [0] * (n + 1)
    for end in range(least, n + 1):
        for start in (0, *range(least, end - least + 1)):
            if (total := best[start] + cost(start, end) + (penalty if start else 0.0)) < best[end] - 1e-12:
                best[end], came_from[end] = total, start
    out, end = [], n
    while came_from[end]:
        end = came_from[end]
        out.append(end)
    return out[::-1]


def _bridged(values: Floats) -> Floats:
    at = ~np.isnan(values)
    if not at.any():
        return values[:0]
    before = np.maximum.accumulate(np.where(at, np.arange(len(values)), 0))
    out: Floats = values[before]
    return out[int(np.argmax(at)) :] if np.isnan(out[0]) else out
