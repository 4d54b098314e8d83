"""The charts of a run as files for papers: SVG, and PNG at print resolution, from the figures that the page draws."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from testbed.record import durable
from testbed.record.folder import RunReader
from testbed.report import figures, pages
from testbed.report.drawing import VIRIDIS

WIDTH = 520  # points; a column and a half of a paper
PNG_SCALE = 3
OUTCOME_COLOURS = {  # Okabe and Ito, "Color Universal Design", 2008
    "fresh": "#009e73",
    "stale": "#e69f00",
    "foreign": "#d55e00",
    "wrong": "#cc79a7",
    "unknown": "#8a8a8a",
}
SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-down")
INK, HARM = "#222222", "#d55e00"


def write_charts(folder: Path, out: Path) -> list[Path]:
    """Write each chart that the run has figures for as ``<name>.svg`` and ``<name>.png``; the paths."""
    convert = _converter()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise durable.cannot_write(out, error) from error
    paths = []
    for name, spec in charts(RunReader(folder).summary).items():
        svg, png = out / f"{name}.svg", out / f"{name}.png"
        durable.write_bytes(svg, _numbered(convert.vegalite_to_svg(spec)).encode("utf-8"))
        durable.write_bytes(png, convert.vegalite_to_png(spec, scale=PNG_SCALE))
        paths += [svg, png]
    return paths


def charts(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Vega-Lite specifications by name; the same summary gives the same ones."""
    alt = _altair()
    return {name: _finished(alt, chart) for name, chart in _charts(alt, summary)}


def _charts(alt: Any, summary: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    heat, spread = figures.heat(summary), figures.spread(summary)
    if heat is not None:
        yield "heatmap", _heatmap(alt, heat, summary["metric"])
    if spread is not None and spread.outcomes:
        yield "outcomes", _outcomes(alt, spread)
    if spread is not None and spread.poisoned and spread.poisoned[-1]:
        yield "poisoned", _poisoned(alt, spread)
    shares = [s for s in figures.blame(summary) if s.share is not None]
    if shares:
        yield "blame", _blame(alt, shares)
    points = figures.plane(summary)
    if len(points) > 1:
        yield "fixes", _plane(alt, points, summary)


def _heatmap(alt: Any, heat: figures.Heat, metric: str) -> Any:
    rows = [
        {"layer": layer, "window": i + 1, "rate": rate}
        for layer, rates in heat.hits.items()
        for i, rate in enumerate(rates)
        if rate is not None
    ]
    lost = [{"window": i + 1, "lost": value} for i, value in enumerate(heat.lost) if value is not None]
    x = alt.X("window:O", axis=None, scale=alt.Scale(domain=[i + 1 for i in range(len(heat.lost))]))
    upper = (
        alt.Chart(_values(alt, rows), width=WIDTH, height=18 * len(heat.hits))
        .mark_rect()
        .encode(
            x=x,
            y=alt.Y("layer:N", sort=list(heat.hits), title=None),
            color=alt.Color(
                "rate:Q",
                title="hit rate",
                scale=alt.Scale(domain=[0, 1], range=[f"#{c}" for c in VIRIDIS]),
            ),
        )
    )
    x = alt.X(
        "window:O",
        title="window of the stream",
        scale=alt.Scale(domain=[i + 1 for i in range(len(heat.lost))], paddingInner=0.08),
        axis=alt.Axis(labelOverlap=True, labelAngle=0),
    )
    lower = (
        alt.Chart(_values(alt, lost), width=WIDTH, height=90)
        .mark_bar(color=HARM, opacity=0.75)
        .encode(x=x, y=alt.Y("lost:Q", title=f"{metric} lost", scale=alt.Scale(reverse=True)))
    )
    return alt.vconcat(upper, lower, spacing=6).resolve_scale(x="shared")


def _outcomes(alt: Any, spread: figures.Spread) -> Any:
    asked = {name: [sum(window) for window in zip(*_known(o), strict=True)] for name, o in spread.outcomes.items()}
    rows = [
        {"layer": layer, "window": i + 1, "outcome": name, "share": count / asked[layer][i], "order": place}
        for layer, outcomes in spread.outcomes.items()
        for place, (name, counts) in enumerate(outcomes.items())
        if name != "miss"
        for i, count in enumerate(counts)
        if count
    ]
    return (
        alt.Chart(_values(alt, rows), width=WIDTH, height=64)
        .mark_bar()
        .encode(
            x=alt.X("window:O", title="window of the stream", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
            y=alt.Y("share:Q", title="share", scale=alt.Scale(domain=[0, 1])),
            color=alt.Color(
                "outcome:N",
                title=None,
                sort=list(OUTCOME_COLOURS),
                scale=alt.Scale(domain=list(OUTCOME_COLOURS), range=list(OUTCOME_COLOURS.values())),
            ),
            order="order:Q",
            row=alt.Row("layer:N", sort=list(spread.outcomes), title=None, header=alt.Header(labelAngle=0)),
        )
    )


def _known(outcomes: Mapping[str, tuple[int, ...]]) -> list[tuple[int, ...]]:
    return [counts for counts in outcomes.values() if counts]


def _poisoned(alt: Any, spread: figures.Spread) -> Any:
    rows = [{"window": i + 1, "entries": count} for i, count in enumerate(spread.poisoned)]
    return (
        alt.Chart(_values(alt, rows), width=WIDTH, height=140)
        .mark_bar(color=HARM, opacity=0.75)
        .encode(
            x=alt.X("window:O", title="window of the stream", axis=alt.Axis(labelOverlap=True, labelAngle=0)),
            y=alt.Y("entries:Q", title="poisoned entries"),
        )
    )


def _blame(alt: Any, shares: list[figures.Share]) -> Any:
    rows = [{"layer": s.layer, "share": s.share, "low": s.low, "high": s.high} for s in shares]
    y = alt.Y("layer:N", sort=[s.layer for s in shares], title=None)
    base = alt.Chart(_values(alt, rows), width=WIDTH, height=26 * len(shares))
    title = "share of the drop that is gone without the layer (95 % interval)"
    x = alt.X("share:Q", title=title, axis=alt.Axis(format="%"))
    rule = base.mark_rule(color=INK, strokeWidth=2).encode(y=y, x=alt.X("low:Q", title=title), x2="high:Q")
    return rule + base.mark_point(color=INK, filled=True, size=70, opacity=1).encode(y=y, x=x)


def _plane(alt: Any, points: list[figures.Point], summary: Mapping[str, Any]) -> Any:
    rows = [{"arm": p.label, "lost": p.hits_lost, "left": p.left, "low": p.low, "high": p.high} for p in points]
    title = f"{summary['metric']} still lost (95 % interval)"
    ends = [min([-0.1, *(p.hits_lost for p in points)]), max([0.1, *(p.hits_lost for p in points)])]
    base = alt.Chart(_values(alt, rows), width=WIDTH * 0.6, height=WIDTH * 0.42)
    x = alt.X("lost:Q", title=f"hit rate lost ({summary['hits_of']})", scale=alt.Scale(domain=ends, padding=12))
    labels = [p.label for p in points]
    colours = [colour for _, colour in zip(labels, cycle(_colours()), strict=False)]
    shapes = [shape for _, shape in zip(labels, cycle(SHAPES), strict=False)]
    colour = alt.Color("arm:N", title=None, scale=alt.Scale(domain=labels, range=colours))
    shape = alt.Shape("arm:N", title=None, scale=alt.Scale(domain=labels, range=shapes))
    rule = base.mark_rule().encode(x=x, y=alt.Y("low:Q", title=title), y2="high:Q", color=colour)
    dots = base.mark_point(filled=True, size=90, opacity=0.9)
    return rule + dots.encode(x=x, y=alt.Y("left:Q", title=title), color=colour, shape=shape)


def _colours() -> Iterator[str]:
    """Okabe and Ito's, the loudest for the stack without a fix."""
    yield from (HARM, "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a8a8a")


def _finished(alt: Any, chart: Any) -> dict[str, Any]:
    plain = chart.configure_view(stroke=None).configure_axis(
        gridColor="#e6e6e6", domainColor="#888888", tickColor="#888888", labelColor=INK, titleColor=INK
    )
    found: dict[str, Any] = plain.to_dict()
    return found


def _values(alt: Any, rows: list[dict[str, Any]]) -> Any:
    return alt.Data(values=rows)


def _numbered(svg: str) -> str:
    """Gradients and clips numbered from 0: the renderer counts them over all that it has drawn so far."""
    numbers: dict[str, str] = {}
    return re.sub(
        r'(id="|href="#|url\(#)((?:gradient_|clip)\d+)',
        lambda found: found[1] + numbers.setdefault(found[2], f"part{len(numbers)}"),
        svg,
    )


def _altair() -> Any:
    try:
        import altair
    except ImportError as error:
        raise pages.missing("altair") from error
    return altair


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise pages.missing("vl-convert-python") from error
    return vl_convert
