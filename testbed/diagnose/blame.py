"""Whose fault a drop is, by replaying without a layer: a counterfactual, not a correlation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import factorial, isnan, nan
from typing import Any, NamedTuple

import numpy as np

from testbed.core import coalitions
from testbed.core.errors import InvalidInput
from testbed.diagnose.significance import Floats, resampled_means

# A share of a drop this small (in units of the metric) is noise over noise.
SMALLEST_DROP = 0.005
_SAME = 1e-9


class Blame(NamedTuple):
    """The share of the drop that goes away without the layer, with its 95 % interval.

    1.0: all of it. Below 0: it gets worse without the layer. None: could not tell (``why``). ``worse`` counts the asks
    that are worse than in the clean arm, ``mended`` those of them that are not without the layer: of a deterministic
    stack they say whose fault these asks are, however few. ``drop`` is the difference of the means.
    """

    layer: str
    share: float | None
    low: float = nan
    high: float = nan
    why: str = ""
    worse: int = 0
    mended: int = 0
    drop: float = nan


def from_json(row: Mapping[str, Any]) -> Blame:
    """The blame that a summary holds, also an older one's, which has no counts; JSON has no NaN."""
    return Blame(**{**row, **{name: nan if row.get(name) is None else row[name] for name in ("low", "high", "drop")}})


def counterfactual(
    clean: Floats, faulty: Floats, without: Mapping[str, Floats], *, seed: int, sign: int = 1
) -> list[Blame]:
    """Share of the drop that each bypass gives back: (without - faulty) / (clean - faulty).

    Parameters
    ----------
    clean, faulty : (n_asks,) a metric over the same stream; NaN where unscored
    without : the same of the faulty stack without each layer
    sign : -1 for a metric of which less is better

    Returns
    -------
    One blame for each layer, most guilty first, then in the order given. The intervals come from block resamples that
    take the same asks from all arms. Every share is None when the drop is not clearly there; then those that mend the
    most asks are first.
    """
    out = [_share(layer, clean, faulty, values, seed=seed, sign=sign) for layer, values in without.items()]
    return sorted(out, key=lambda b: (-b.share if b.share is not None else float("inf"), -b.mended))


def _share(layer: str, clean: Floats, faulty: Floats, values: Floats, *, seed: int, sign: int) -> Blame:
    stacked = np.stack([clean, faulty, values]) * sign
    known = stacked[:, ~np.isnan(stacked).any(axis=0)]
    if not known.shape[1]:
        return Blame(layer, None, why="no ask is scored in all three arms")
    lost = stacked[1] < stacked[0] - _SAME  # False where one of the two is unscored
    worse, mended = int(lost.sum()), int((stacked[2][lost] >= stacked[0][lost] - _SAME).sum())
    drop, gain = float(known[0].mean() - known[1].mean()), float(known[2].mean() - known[1].mean())
    # One name for all layers: every layer is judged over the same resampled asks.
    means = resampled_means(known, seed=seed, name="blame")
    drops, gains = means[:, 0] - means[:, 1], means[:, 2] - means[:, 1]
    if drop < SMALLEST_DROP or float(np.percentile(drops, 2.5)) <= 0.0:
        return Blame(
            layer, None, why=f"the drop of {drop:.4f} is not clearly above 0", worse=worse, mended=mended, drop=drop
        )
    # The denominator is kept off zero in the few resamples that miss the drop.
    shares = gains / np.maximum(drops, SMALLEST_DROP / 2)
    low, high = np.percentile(shares, [2.5, 97.5])
    return Blame(layer, gain / drop, float(low), float(high), worse=worse, mended=mended, drop=drop)


def shapley(values: Mapping[frozenset[str], float], layers: Iterable[str]) -> dict[str, float]:
    """Each layer's fair share of what bypassing all of them changes.

    Parameters
    ----------
    values : the score of the faulty stack with each subset of the layers bypassed, the empty and the full one included
    layers : distinct names

    Returns
    -------
    Shares that sum to ``values[all] - values[none]``: layers that do the same get the same, one that does nothing 0.

    Raises
    ------
    InvalidInput : the score of a subset is missing or unscored.

    References
    ----------
    Shapley, "A value for n-person games", 1953.
    """
    names = _distinct(layers)
    for subset in coalitions.subsets(names):
        if isnan(values.get(subset, nan)):
            raise InvalidInput(f"no score for the stack without {sorted(subset)}; shapley needs all 2^{len(names)}")
    out = {}
    for layer in names:
        others = [name for name in names if name != layer]
        total = 0.0
        for subset in coalitions.subsets(others):
            weight = factorial(len(subset)) * factorial(len(others) - len(subset)) / factorial(len(names))
            total += weight * (values[subset | {layer}] - values[subset])
        out[layer] = total
    return out


def shapley_by_ask(series: Mapping[frozenset[str], Floats], layers: Iterable[str]) -> dict[str, Floats]:
    """Each layer's share of what bypassing all of them changes for each ask: (n_asks,), NaN where an arm is unscored.

    Shares add up as scores do, so the mean over some asks (a window, a tenant, a run) is the share over these.
    """
    names = _distinct(layers)
    for subset in coalitions.subsets(names):
        if subset not in series:
            raise InvalidInput(f"no arm without {sorted(subset)}; shapley needs all 2^{len(names)}")
    out: dict[str, Floats] = {name: np.zeros(len(series[frozenset()])) for name in names}
    for name, total in out.items():
        for subset in coalitions.subsets([other for other in names if other != name]):
            weight = factorial(len(subset)) * factorial(len(names) - len(subset) - 1) / factorial(len(names))
            total += weight * (series[subset | {name}] - series[subset])
    return out


class Repair(NamedTuple):
    """The layers without which all is as it should be: so many asks are ``worse`` with them, and ``left`` without."""

    layers: tuple[str, ...]
    worse: int
    left: int


def smallest_repair(clean: Floats, series: Mapping[frozenset[str], Floats], layers: Iterable[str]) -> Repair:
    """The fewest layers whose bypass leaves the fewest asks that are worse than in the clean arm.

    Parameters
    ----------
    clean : (n_asks,) a metric of which more is better, all scored
    series : the same of the faulty stack without each set of layers, without none of them included
    layers : their order, which is the answer's too

    Of sets of one size that leave equally many, the one with the highest mean. It says whose fault it is where the
    stack is deterministic: there an ask is not worse by chance.
    """
    names = _distinct(layers)
    left = {s: int((values < clean - _SAME).sum()) for s, values in series.items()}
    least = min(left.values())
    places = {s: sorted(names.index(layer) for layer in s) for s, n in left.items() if n == least}
    best = min(places, key=lambda s: (len(s), -float(series[s].mean()), places[s]))
    return Repair(tuple(names[place] for place in places[best]), left[frozenset()], least)


class Sampled(NamedTuple):
    """An estimated share and the standard error of the estimate."""

    share: float
    error: float


def sampled_shapley(
    score: Callable[[frozenset[str]], float], layers: Iterable[str], *, seed: int, pairs: int = coalitions.PAIRS
) -> dict[str, Sampled]:
    """Shapley shares from random orders of the layers, for more layers than can be replayed in all subsets.

    Each order is used forwards and backwards, which cancels much of the noise. ``score`` is asked for a subset once.
    The shares still sum to the whole change exactly.
    """
    names = _distinct(layers)
    memo: dict[frozenset[str], float] = {}

    def worth(subset: frozenset[str]) -> float:
        if subset not in memo:
            memo[subset] = score(subset)
        return memo[subset]

    gains: dict[str, list[float]] = {name: [] for name in names}
    found = coalitions.orders(names, seed=seed, pairs=pairs)
    for order, reverse in zip(found[::2], found[1::2], strict=True):
        forwards, backwards = _marginal(worth, order), _marginal(worth, reverse)
        for name in names:
            gains[name].append((forwards[name] + backwards[name]) / 2)
    return {name: Sampled(_mean(g), _standard_error(g)) for name, g in gains.items()}


def _marginal(worth: Callable[[frozenset[str]], float], order: Sequence[str]) -> dict[str, float]:
    out, before = {}, frozenset[str]()
    for name in order:
        out[name] = worth(before | {name}) - worth(before)
        before |= {name}
    return out


def _distinct(layers: Iterable[str]) -> list[str]:
    names = list(layers)
    if len(set(names)) != len(names):
        raise InvalidInput(f"layers={names} must be distinct (shapley)")
    return names


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else nan
