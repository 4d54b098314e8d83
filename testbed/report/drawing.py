"""Positions and colours of what a page draws: numbers in, attributes of SVG elements out.

Positions are percentages, so that a drawing fits any width with its texts unscaled and without a script.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from testbed.report import figures
from testbed.report.figures import Heat, Point, Rates, Share, Spread

# Viridis at equal steps: darker is less, readable without colour and by every kind of colour vision.
VIRIDIS = ("440154", "472c7a", "3b518b", "2c718e", "21908d", "27ad81", "5cc863", "aadc32", "fde725")


class Cell(NamedTuple):
    x: str
    width: str
    fill: str  # "" where there is nothing to show
    title: str


class Bar(NamedTuple):
    """A part of a column of parts, from ``y`` down."""

    kind: str
    x: str
    y: str
    width: str
    height: str


class Row(NamedTuple):
    label: str
    cells: tuple[Cell, ...]
    valid: tuple[Cell, ...]


class Curve(NamedTuple):
    """Steps in a box of ``width`` x 100, with its highest value at the end of the axis."""

    line: str
    area: str
    top: float
    width: int


class Whisker(NamedTuple):
    """A value with its interval on a common axis, in percent of it; None where it is not known."""

    label: str
    at: str
    low: str
    high: str
    value: float | None
    interval: tuple[float, float] | None
    why: str


class Mark(NamedTuple):
    """A point of the plane; points that would cover one another are one mark with several numbers."""

    numbers: str
    x: str
    y: str
    low: str
    high: str
    bare: bool  # holds the stack without any fix


class Plane(NamedTuple):
    marks: tuple[Mark, ...]
    zero_x: str
    zero_y: str
    x_ticks: tuple[tuple[str, float], ...]
    y_ticks: tuple[tuple[str, float], ...]


def rows(heat: Heat) -> list[Row]:
    """Hit rate and valid hit rate of each layer, one cell a window."""
    return [
        Row(layer, _cells(rates, heat, "hit rate"), _cells(heat.valid[layer], heat, "valid hit rate"))
        for layer, rates in heat.hits.items()
    ]


def steps(values: Rates | Sequence[int], top: float | None = None) -> Curve:
    """A step for each window, as high as its value; a window that is not known is a gap, one below 0 lies at 0."""
    most = top or max([0.0, *figures.known(values)]) or 1.0
    line, area, open_at = "", "", None
    for i, value in enumerate(values):
        if value is None:
            area += f"H{i}V0Z" if open_at is not None else ""
            open_at = None
            continue
        y = _plain(100 * min(1.0, max(0.0, value / most)))
        line += f"V{y}H{i + 1}" if open_at is not None else f"M{i} {y}H{i + 1}"
        area += f"V{y}H{i + 1}" if open_at is not None else f"M{i} 0V{y}H{i + 1}"
        open_at = i if open_at is None else open_at
    area += f"H{len(values)}V0Z" if open_at is not None else ""
    return Curve(line, area, most, len(values))


def columns(spread: Spread) -> list[tuple[str, tuple[Bar, ...], dict[str, int]]]:
    """Each layer's lookups in each window, one upon the other, as shares of the window's; and their sums."""
    return [
        (layer, tuple(_bars(counts)), {name: sum(values) for name, values in counts.items()})
        for layer, counts in spread.outcomes.items()
    ]


def whiskers(shares: Iterable[Share], whole: float = 1.0) -> tuple[list[Whisker], list[tuple[str, float]]]:
    """Shares on one axis that holds 0, the whole and every interval; its ticks."""
    found = list(shares)
    values = [v for s in found for v in (s.share, s.low, s.high) if v is not None]
    least, most = min([0.0, *values]), max([whole, *values])
    least, most = max(least, -whole), min(most, 2 * whole)
    least, most = least - 0.04 * (most - least), most + 0.04 * (most - least)

    def at(value: float) -> str:
        return _percent(min(1.0, max(0.0, (value - least) / (most - least))))

    out = []
    for s in found:
        if s.share is None:
            out.append(Whisker(s.layer, "", "", "", None, None, s.why))
            continue
        low, high = (s.share if v is None else v for v in (s.low, s.high))
        out.append(Whisker(s.layer, at(s.share), at(low), at(high), s.share, (low, high), s.why))
    return out, [(at(tick), tick) for tick in (0.0, whole / 2, whole)]


def plane(points: Sequence[Point]) -> Plane | None:
    """The first point by its label, the others by their number; None when there is nothing to compare."""
    if len(points) < 2:
        return None
    xs, ys = [p.hits_lost for p in points], [v for p in points for v in (p.left, p.low, p.high)]
    left, right = _padded(min([-0.1, *xs]), max([0.1, *xs]))
    bottom, top = _padded(min([0.0, *ys]), max([0.1, *ys]))

    def x(value: float) -> float:
        return (value - left) / (right - left)

    def y(value: float) -> float:
        return 1 - (value - bottom) / (top - bottom)

    groups: list[list[int]] = []
    for i, p in enumerate(points):
        near = [g for g in groups if _near((x(p.hits_lost), y(p.left)), [(x(xs[j]), y(points[j].left)) for j in g])]
        near[0].append(i) if near else groups.append([i])
    marks = []
    for group in groups:
        p = points[group[0]]
        numbers = ", ".join(str(i) if i else points[i].label for i in group)
        spot = _percent(x(p.hits_lost)), _percent(y(p.left))
        marks.append(Mark(numbers, *spot, _percent(y(p.low)), _percent(y(p.high)), bare=group[0] == 0))
    return Plane(
        tuple(marks),
        _percent(x(0.0)),
        _percent(y(0.0)),
        tuple((_percent(x(tick)), tick) for tick in _ticks(left, right)),
        tuple((_percent(y(tick)), tick) for tick in _ticks(bottom, top)),
    )


def colour(share: float) -> str:
    """A rate in [0, 1] as a colour of viridis."""
    at = min(1.0, max(0.0, share)) * (len(VIRIDIS) - 1)
    low = min(int(at), len(VIRIDIS) - 2)
    pairs = zip(bytes.fromhex(VIRIDIS[low]), bytes.fromhex(VIRIDIS[low + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (at - low)):02x}" for a, b in pairs)


def _cells(rates: Rates, heat: Heat, what: str) -> tuple[Cell, ...]:
    n = len(rates)
    return tuple(
        Cell(
            _percent(i / n),
            _percent(1 / n),
            "" if rate is None else colour(rate),
            f"questions {heat.asks[i][0]} to {heat.asks[i][1]}: "
            + ("not asked" if rate is None else f"{what} {rate:.2f}"),
        )
        for i, rate in enumerate(rates)
    )


def _bars(counts: Mapping[str, tuple[int, ...]]) -> Iterable[Bar]:
    n = max(len(values) for values in counts.values())
    for i in range(n):
        total = sum(values[i] for values in counts.values() if values)
        above = 0
        for kind, values in counts.items():
            if total and values and values[i] and kind != "miss":
                y = 1 - (above + values[i]) / total
                yield Bar(kind, _percent(i / n), _percent(y), _percent(0.92 / n), _percent(values[i] / total))
                above += values[i]


def _near(spot: tuple[float, float], others: Sequence[tuple[float, float]]) -> bool:
    return any(abs(spot[0] - x) < 0.05 and abs(spot[1] - y) < 0.07 for x, y in others)


def _padded(low: float, high: float) -> tuple[float, float]:
    pad = 0.1 * (high - low)
    return low - pad, high + pad


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers inside the range."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0):
        first = -int(-low // step) if low > 0 else -int(-low / step)
        found = [round(i * step, 6) for i in range(first, int(high / step) + 1)]
        if len(found) <= 6:
            return found
    return [0.0]


def _percent(share: float) -> str:
    return f"{_plain(100 * share)}%"


def _plain(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
