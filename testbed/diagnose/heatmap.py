"""Hit rate by layer and time beside the curve of the difference, and what was published to be read off the two.

The published method lays a heatmap of hit rates (layer x time) over the accuracy difference, both resampled to 128
steps, and reads a guilty layer and a confidence off peaks that coincide. It gives no formula; the one here is stated
in ``joint_attribution``. Coincidence is not blame: see ``blame`` for what replay knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from testbed.diagnose.delta import curve, mean_known, windows
from testbed.diagnose.significance import Floats
from testbed.metrics.serving import Served

STEPS = 128
# How far apart, in steps, a peak and an inflection may be and still match; how wide the agreement is looked at.
REACH, AROUND = 8, 16


@dataclass(frozen=True, slots=True)
class Heatmap:
    """Rates by layer and window of the stream (NaN: the layer was not asked), and the mean difference per window."""

    layers: tuple[str, ...]
    hits: Mapping[str, tuple[float, ...]]
    valid_hits: Mapping[str, tuple[float, ...]]
    delta: tuple[float, ...]


class Match(NamedTuple):
    """A peak of a layer's hit rate change, the inflection of the difference that matches it, and how well."""

    layer: str
    peak: int
    inflection: int
    delta: float
    confidence: float


def heatmap(
    lookups: Iterable[Served], ops: Sequence[int], deltas: Floats, layers: Sequence[str], n_windows: int = 32
) -> Heatmap:
    """Cut the stream into windows of asks.

    Parameters
    ----------
    lookups : what each layer served
    ops : the asks in stream order
    deltas : (n_asks,) per-ask differences, NaN where unscored
    """
    position = {op: i for i, op in enumerate(ops)}
    window_of = np.empty(len(ops), dtype=int)
    for number, window in enumerate(windows(len(ops), n_windows)):
        window_of[window.start : window.stop] = number
    n = len(windows(len(ops), n_windows))
    counts = {layer: np.zeros((3, n)) for layer in layers}
    for served in lookups:
        if served.layer in counts and served.op in position:
            at = window_of[position[served.op]]
            counts[served.layer][:, at] += (1, served.outcome != "miss", served.outcome == "fresh")
    return Heatmap(
        tuple(layers),
        {layer: _rates(c[1], c[0]) for layer, c in counts.items()},
        {layer: _rates(c[2], c[0]) for layer, c in counts.items()},
        tuple(curve(deltas, n_windows)),
    )


def resample(values: Sequence[float], steps: int = STEPS) -> Floats:
    """Linear interpolation between the middles of the windows, over the known ones: (steps,), NaN if none is known."""
    known = np.array(values, dtype=np.float64)
    middles = (np.arange(len(known)) + 0.5) / max(1, len(known))
    at = ~np.isnan(known)
    if not at.any():
        return np.full(steps, np.nan)
    out: Floats = np.interp((np.arange(steps) + 0.5) / steps, middles[at], known[at])
    return out


def joint_attribution(heat: Heatmap) -> list[Match]:
    """Peaks of hit rate change that match an inflection of the difference, most confident first.

    Both curves are resampled to 128 steps and smoothed over 5. A peak is a local maximum of the absolute slope of a
    layer's hit rate; its inflection is the steepest local maximum of the absolute slope of the difference within 8
    steps. Confidence is the absolute correlation of the two curves within 16 steps of the peak, times
    ``1 - distance / 9``. ``delta`` is the difference at the inflection. The tiers of a layer are not layers to blame.
    """
    difference = _smooth(resample(heat.delta))
    slope = np.round(np.abs(np.gradient(difference)), 9)
    turns = _maxima(slope)
    out = []
    for layer in (name for name in heat.layers if "." not in name):
        rate = _smooth(resample(heat.hits[layer]))
        for peak in _maxima(np.abs(np.gradient(rate))):
            near = [t for t in turns if abs(t - peak) <= REACH]
            if near:
                turn = max(near, key=lambda t: (slope[t], -abs(t - peak)))
                sure = _agreement(rate, difference, peak) * (1 - abs(turn - peak) / (REACH + 1))
                out.append(Match(layer, peak, turn, float(difference[turn]), sure))
    return sorted(out, key=lambda m: (-m.confidence, heat.layers.index(m.layer), m.peak))


def _rates(part: Floats, whole: Floats) -> tuple[float, ...]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return tuple(float(x) for x in np.where(whole > 0, part / whole, np.nan))


def _smooth(values: Floats, width: int = 5) -> Floats:
    padded = np.pad(values, width // 2, mode="edge")
    out: Floats = np.convolve(padded, np.full(width, 1 / width), mode="valid")
    return out


def _maxima(values: Floats, least: float = 1e-9) -> list[int]:
    """Positions higher than the one before and not lower than the one after, rounding errors aside."""
    values = np.round(values, 9)
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    return [i for i, v in enumerate(values) if v > least and v > padded[i] and v >= padded[i + 2]]


def _agreement(one: Floats, other: Floats, at: int) -> float:
    """Absolute correlation around a step; 0 where one of the two does not move."""
    part = slice(max(0, at - AROUND), at + AROUND + 1)
    a, b = one[part] - mean_known(one[part]), other[part] - mean_known(other[part])
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return min(1.0, abs(float(a @ b)) / spread) if spread > 1e-12 else 0.0
