"""Popularity: few questions are asked often, many are asked rarely."""

from __future__ import annotations

import bisect
import itertools
import random


class Zipf:
    """Ranks 0..n-1 drawn with probability proportional to 1 / (rank + 1) ** s; s = 0 is uniform."""

    def __init__(self, n: int, s: float) -> None:
        self._cumulative = list(itertools.accumulate((rank + 1) ** -s for rank in range(n)))

    def draw(self, rng: random.Random) -> int:
        total = self._cumulative[-1]
        return min(bisect.bisect(self._cumulative, rng.random() * total), len(self._cumulative) - 1)
