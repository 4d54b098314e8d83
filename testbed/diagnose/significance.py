"""How sure a difference is, when the asks of one run share a cache and so are not independent.

The differences of neighbouring asks move together: resampling single asks gives intervals that are too narrow by
far. Blocks of the stream are resampled instead, and the stream is closed to a circle so that no ask counts less.

The asks of one question move together too, however far apart they are: a wrong answer that got into a cache is served
to all who ask it. Where it is known which asks those are, whole questions are resampled as well, and of the two ways
the one counts that leaves more doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, nan, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.core.errors import InvalidInput
from testbed.core.seeds import stream

Floats = NDArray[np.float64]
Questions = NDArray[np.int64]  # (n_asks,): the same number for asks of the same question

BLOCK = 25
RESAMPLES = 1000
# Intervals and tests of a difference take longer blocks, so that what neighbours share stays inside of one, and then
# pay for there being few of them (``widened``). Measured on series of known mean: see the test of this file.
LONG_BLOCK, FEWEST_BLOCKS = 40, 3


class Resampled(NamedTuple):
    """Means of resamples: (resamples, n_series), and by how much their spread understates the error: (n_series,)."""

    means: Floats
    wider: Floats


class Interval(NamedTuple):
    """A mean and the bounds of its 95 % interval; NaN when there was nothing to average."""

    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0.0 or self.high < 0.0


def generator(seed: int, *names: str) -> np.random.Generator:
    """A numpy generator that depends on the seed and the names only."""
    return np.random.default_rng(stream(seed, "significance", *names).getrandbits(128))


def resampled_means(
    series: Floats, *, seed: int, name: str = "", block: int = BLOCK, resamples: int = RESAMPLES
) -> Floats:
    """Means of circular block resamples, the same asks for every series.

    Parameters
    ----------
    series : (n_series, n_asks), in stream order, no NaN
    block : asks to a block; cut to the length of the stream

    Returns
    -------
    (resamples, n_series), float64

    References
    ----------
    Politis and Romano, "A circular block-resampling procedure for stationary data", 1992.
    """
    n = series.shape[1]
    if n == 0 or block < 1:
        raise InvalidInput(f"n_asks={n} and block={block} must be >= 1 (block bootstrap)")
    block = min(block, n)
    n_blocks = -(-n // block)
    lengths = np.full(n_blocks, block)
    lengths[-1] = n - block * (n_blocks - 1)
    starts = generator(seed, "bootstrap", name, str(block)).integers(0, n, size=(resamples, n_blocks))
    # Sums over blocks from running sums: no resample is ever written out.
    running = np.concatenate([np.zeros((len(series), 1)), np.cumsum(np.hstack([series, series]), axis=1)], axis=1)
    sums = running[:, starts + lengths] - running[:, starts]
    means: Floats = sums.sum(axis=2).T / n
    return means


def long_block(n_asks: int) -> int:
    """The block of intervals and tests: ``LONG_BLOCK`` asks, less in a stream that would have fewer than three."""
    return max(1, min(LONG_BLOCK, n_asks // FEWEST_BLOCKS))


def widened(n_asks: int, block: int) -> float:
    """By how much the spread of resampled means understates the error when there are only ``n_asks / block`` blocks.

    The spread around the sample's own mean is too small by ``sqrt(1 - block / n_asks)``, and an error that was
    estimated from few blocks has the quantiles of Student's t.
    """
    return _widened(n_asks / block)


def _widened(n: float) -> float:
    return sqrt(n / (n - 1)) * _t_quantile(n - 1) / _Z if n >= 2 else 1.0


def n_effective(questions: Questions) -> float:
    """How many questions of one size are as many as these: popular ones count for most of the asks."""
    sizes = np.bincount(questions).astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def numbered(questions: Sequence[object]) -> Questions:
    """The same number for asks of the same question, in the order in which they come first."""
    known: dict[object, int] = {}
    return np.array([known.setdefault(question, len(known)) for question in questions], dtype=np.int64)


def difference(
    deltas: Floats, *, seed: int, name: str = "", block: int | None = None, questions: Questions | None = None
) -> tuple[Interval, float]:
    """Mean and 95 % interval of per-ask differences in stream order, and the smallest mean that they would show.

    That is with 80 % power, at a 5 % two-sided level.
    """
    if not len(deltas):
        return Interval(nan, nan, nan), nan
    asked = None if questions is None else [questions]
    found = resampled([deltas[None, :]], seed=seed, name=name, block=block, questions=asked)
    means, wider = found.means[:, 0], float(found.wider[0])
    return around(float(deltas.mean()), means, wider), smallest_seen(means, wider)


def interval(
    deltas: Floats, *, seed: int, name: str = "", block: int | None = None, questions: Questions | None = None
) -> Interval:
    """The first of ``difference``."""
    return difference(deltas, seed=seed, name=name, block=block, questions=questions)[0]


def around(mean: float, means: Floats, wider: float) -> Interval:
    """The 95 % interval from resampled means (percentiles), made ``wider`` around the mean.

    A resample without a scored ask is NaN, and left out.
    """
    low, high = np.nanpercentile(means, [2.5, 97.5])
    return Interval(mean, mean + (float(low) - mean) * wider, mean + (float(high) - mean) * wider)


def smallest_seen(means: Floats, wider: float, power: float = 0.8) -> float:
    """The same from resampled means."""
    return (_Z * wider + NormalDist().inv_cdf(power)) * float(np.nanstd(means))


def resampled(
    runs: Sequence[Floats],
    *,
    seed: int,
    name: str = "",
    resamples: int = RESAMPLES,
    block: int | None = None,
    questions: Sequence[Questions] | None = None,
) -> Resampled:
    """``pooled_means`` of blocks and, where ``questions`` are known, of questions: for each series what spreads more.

    Parameters
    ----------
    questions : one array a run; with fewer than three questions of a size they tell nothing, and are left out
    """
    n_asks = sum(run.shape[1] for run in runs)
    used = long_block(min(run.shape[1] for run in runs)) if block is None else block
    means = pooled_means(runs, seed=seed, name=name, resamples=resamples, block=block)
    wider = np.full(means.shape[1], widened(n_asks, used))
    n = 0.0 if questions is None else sum(n_effective(asked) for asked in questions)
    if questions is None or n < FEWEST_BLOCKS:
        return Resampled(means, wider)
    others = pooled_means(runs, seed=seed, name=name, resamples=resamples, questions=questions)
    more = np.nanstd(others, axis=0) * _widened(n) > np.nanstd(means, axis=0) * wider
    return Resampled(np.where(more, others, means), np.where(more, _widened(n), wider))


def pooled_means(
    runs: Sequence[Floats],
    *,
    seed: int,
    name: str = "",
    resamples: int = RESAMPLES,
    block: int | None = None,
    questions: Sequence[Questions] | None = None,
) -> Floats:
    """Resampled means of several series over one run or more: runs are drawn anew, and blocks within each.

    Parameters
    ----------
    runs : one array a run (a seed), (n_series, n_asks), NaN where unscored; the same series in each
    questions : one array a run; whole questions are drawn within each, in place of blocks

    Returns
    -------
    (resamples, n_series), float64; NaN where a resample has no scored ask
    """
    n_series, n_runs = runs[0].shape[0], len(runs)
    # One draw of blocks for each place and run, so that a run that is drawn twice is not drawn with the same blocks.
    draws = []
    for number, run in enumerate(runs):
        known = ~np.isnan(run)
        both = np.vstack([np.where(known, run, 0.0), known.astype(np.float64)])
        own, drawn = f"{name}/{number}" if n_runs > 1 else name, resamples * n_runs
        if questions is not None:
            sums = _question_sums(both, questions[number], generator(seed, "questions", own), drawn)
        else:
            size = long_block(run.shape[1]) if block is None else block
            sums = resampled_means(both, seed=seed, name=own, block=size, resamples=drawn) * run.shape[1]
        draws.append(sums.reshape(n_runs, resamples, 2 * n_series))
    chosen = generator(seed, "runs", name).integers(0, n_runs, size=(resamples, n_runs))
    every = np.stack(draws)  # (run, place, resample, series)
    rows = np.arange(resamples)
    total = np.stack([every[chosen[:, place], place, rows] for place in range(n_runs)]).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        out: Floats = total[:, :n_series] / total[:, n_series:]
    # A sum of zeros that went through running sums is not always exactly zero.
    return np.where(np.abs(out) < _ROUNDING, 0.0, out)


def _question_sums(series: Floats, questions: Questions, draw: np.random.Generator, resamples: int) -> Floats:
    """Sums over as many questions as there are, drawn with replacement: (resamples, n_series)."""
    n = int(questions.max()) + 1
    times = draw.multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(np.float64)
    by_question = np.stack([np.bincount(questions, weights=row, minlength=n) for row in series])
    out: Floats = times @ by_question.T
    return out


def largest_of_all_p(observed: Floats, means: Floats, wider: float | Floats) -> Floats:
    """Two-sided p-values of "no difference" for series that were resampled together, adjusted for their number.

    Each is the share of resamples in which the most extreme of all series, each in units of its own error, is as
    extreme as this one is: series that always move together count as one test.

    Parameters
    ----------
    observed : (n_series,) mean differences
    means : (resamples, n_series) from ``pooled_means``
    wider : by how much their spread understates the error, one number or one a series

    References
    ----------
    Westfall and Young, "Resampling-Based Multiple Testing", 1993 (single-step maxT).
    """
    spread = np.nanstd(means, axis=0)
    error = np.where(spread > _ROUNDING, spread, np.inf)  # a series without spread tells nothing of the others
    away = np.abs(np.nan_to_num(means - observed)) / error
    extreme = away.max(axis=1)
    # Without any spread, the difference is the same at every ask: there is no doubt about it, or none at all.
    certain = (spread <= _ROUNDING) & (np.abs(observed) > _ROUNDING)
    scaled = np.where(certain, np.inf, np.abs(observed) / (error * wider))
    p: Floats = ((extreme[:, None] >= scaled[None, :] - 1e-12).sum(axis=0) + 1.0) / (len(means) + 1.0)
    p = np.where((spread <= _ROUNDING) & ~certain, 1.0, np.minimum(p, 1.0))
    return np.where(np.isnan(observed), nan, p)


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for being several (Holm's step-down), in the order given; NaN is no test and stays."""
    known = sorted((p, place) for place, p in enumerate(p_values) if not isnan(p))
    out, floor = [nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(known):
        floor = max(floor, min(1.0, p * (len(known) - rank)))
        out[place] = floor
    return out


def sign_flip_p(deltas: Floats, *, seed: int, name: str = "", block: int = BLOCK, resamples: int = 2000) -> float:
    """Two-sided p-value of "no difference": the signs of whole blocks are flipped at random.

    With ``block=1`` it is the paired permutation test. NaN when there is nothing to compare.
    """
    if not len(deltas):
        return nan
    sums = np.add.reduceat(deltas, np.arange(0, len(deltas), min(block, len(deltas))))
    signs = generator(seed, "sign-flip", name).integers(0, 2, size=(resamples, len(sums))) * 2 - 1
    # A tie with the observed sum counts as as extreme, whatever order the additions were made in.
    extreme = np.abs(signs @ sums) >= abs(float(sums.sum())) - 1e-12
    return float((extreme.sum() + 1) / (resamples + 1))


_Z = NormalDist().inv_cdf(0.975)
_ROUNDING = 1e-12


def _t_quantile(df: float) -> float:
    """The 97.5 % quantile of Student's t, by the expansion around the normal one: within 2 % from 3 degrees up."""
    z = _Z
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
    )
