"""How sure a figure over seeds is: a mean of runs, or a share of runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

# Two-sided 95 % quantiles of Student's t by degrees of freedom, 1 to 30; the normal one beyond.
T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Mean(NamedTuple):
    """A mean over seeds with its 95 % interval; the bounds are NaN when there is one seed."""

    mean: float
    low: float
    high: float
    n: int


class Share(NamedTuple):
    """``hits`` of ``n`` runs, with a 95 % interval."""

    hits: int
    n: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.hits / self.n if self.n else math.nan


def mean(values: Sequence[float]) -> Mean:
    """Mean and t interval of independent runs; all NaN when there is none."""
    n = len(values)
    if not n:
        return Mean(math.nan, math.nan, math.nan, 0)
    middle = math.fsum(values) / n
    if n < 2:
        return Mean(middle, math.nan, math.nan, n)
    error = math.sqrt(math.fsum((v - middle) ** 2 for v in values) / (n - 1) / n)
    half = (T95[n - 2] if n - 2 < len(T95) else 1.96) * error
    return Mean(middle, middle - half, middle + half, n)


def share(hits: int, n: int) -> Share:
    """Exact two-sided 95 % interval of a share: 0 of 300 is below 1.2 %, not 0.

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", 1934.
    """
    if not n:
        return Share(0, 0, math.nan, math.nan)
    low = 0.0 if hits == 0 else _where(lambda p: 1.0 - _at_most(hits - 1, n, p) < 0.025)
    high = 1.0 if hits == n else _where(lambda p: _at_most(hits, n, p) > 0.025)
    return Share(hits, n, low, high)


def _at_most(hits: int, n: int, p: float) -> float:
    """Chance of at most so many hits in n tries."""
    return math.fsum(math.comb(n, k) * p**k * (1.0 - p) ** (n - k) for k in range(hits + 1))


def _where(below: Callable[[float], bool]) -> float:
    """The point in [0, 1] up to which it is true."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) else (low, middle)
    return (low + high) / 2
