"""Small charts as SVG text: lines and bars, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 150, 34, 44
_COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8f5db7", "#e09f3e", "#5c6b73", "#00798c", "#a23e48", "#6a994e", "#333")


def lines(
    title: str, x_label: str, y_label: str, series: Mapping[str, Sequence[tuple[float, float]]], *, y_max: float = 0.0
) -> str:
    """One line a series; both axes linear, y from 0 to ``y_max`` (or the largest value)."""
    points = [point for line in series.values() for point in line]
    xs = [x for x, _ in points]
    low, high = min(xs), max(xs)
    top = y_max or max(y for _, y in points) or 1.0
    span = (high - low) or 1.0

    def at(x: float, y: float) -> str:
        return f"{_LEFT + (x - low) / span * _plot_width():.1f},{_y(y, top):.1f}"

    body = [_text(_LEFT, _HEIGHT - 26, f"{low:g}"), _text(_LEFT + _plot_width(), _HEIGHT - 26, f"{high:g}", "end")]
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(at(x, y) for x, y in line)
        body.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{path}"/>')
        body.append(_legend(number, name, colour))
    return _svg(title, x_label, y_label, top, body)


def bars(title: str, y_label: str, groups: Mapping[str, Mapping[str, float]], *, y_max: float = 0.0) -> str:
    """One group of bars a key, one bar a series; y from 0 to ``y_max`` (or the largest value)."""
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    top = y_max or max((v for group in groups.values() for v in group.values()), default=1.0) or 1.0
    slot = _plot_width() / max(1, len(groups))
    width = 0.8 * slot / max(1, len(names))
    body = []
    for place, (label, group) in enumerate(groups.items()):
        start = _LEFT + place * slot + 0.1 * slot
        body.append(_text(start + 0.4 * slot, _HEIGHT - 26, label, "middle"))
        for name, value in group.items():
            number = names.index(name)
            y = _y(value, top)
            body.append(
                f'<rect x="{start + number * width:.1f}" y="{y:.1f}" width="{width:.1f}" '
                f'height="{_HEIGHT - _BOTTOM - y:.1f}" fill="{_COLOURS[number % len(_COLOURS)]}"/>'
            )
    body += [_legend(i, name, _COLOURS[i % len(_COLOURS)]) for i, name in enumerate(names)]
    return _svg(title, "", y_label, top, body)


def _plot_width() -> int:
    return _WIDTH - _LEFT - _RIGHT


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - min(1.0, max(0.0, value / top)) * (_HEIGHT - _TOP - _BOTTOM)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(number: int, name: str, colour: str) -> str:
    y = _TOP + 16 * number
    mark = f'<rect x="{_WIDTH - _RIGHT + 10}" y="{y}" width="10" height="10" fill="{colour}"/>'
    return mark + _text(_WIDTH - _RIGHT + 26, y + 9, name)


def _svg(title: str, x_label: str, y_label: str, top: float, body: Sequence[str]) -> str:
    base = _HEIGHT - _BOTTOM
    axes = [
        f'<path d="M{_LEFT} {_TOP}V{base}H{_LEFT + _plot_width()}" fill="none" stroke="#333"/>',
        _text(_LEFT - 6, base, "0", "end"),
        _text(_LEFT - 6, _TOP + 8, f"{top:g}", "end"),
        _text(_LEFT, 18, title),
        _text(_LEFT + _plot_width() / 2, _HEIGHT - 8, x_label, "middle"),
        f'<text transform="translate(16 {(_TOP + base) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
            'font-family="sans-serif" font-size="11">',
            f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
            *axes,
            *body,
            "</svg>\n",
        ]
    )
