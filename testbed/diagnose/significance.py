"""How sure a difference is, when the asks of one run share a cache and so are not independent.

The differences of neighbouring asks move together: resampling single asks gives intervals that are too narrow by
far. Blocks of the stream are resampled instead, and the stream is closed to a circle so that no ask counts less.
"""

from __future__ import annotations

from math import nan
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.core.errors import InvalidInput
from testbed.core.seeds import stream

Floats = NDArray[np.float64]

BLOCK = 25
RESAMPLES = 1000


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


def interval(deltas: Floats, *, seed: int, name: str = "", block: int = BLOCK) -> Interval:
    """Mean and 95 % interval (percentiles) of per-ask differences in stream order."""
    if not len(deltas):
        return Interval(nan, nan, nan)
    means = resampled_means(deltas[None, :], seed=seed, name=name, block=block)[:, 0]
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(deltas.mean()), float(low), float(high))


def detectable(deltas: Floats, *, seed: int, name: str = "", block: int = BLOCK, power: float = 0.8) -> float:
    """The smallest mean difference that this many asks would show with that power, at a 5 % two-sided level."""
    if not len(deltas):
        return nan
    error = float(resampled_means(deltas[None, :], seed=seed, name=name, block=block).std())
    normal = NormalDist()
    return (normal.inv_cdf(0.975) + normal.inv_cdf(power)) * error


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
