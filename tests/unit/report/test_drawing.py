from __future__ import annotations

import pytest

from testbed.report import drawing, figures
from testbed.report.figures import Point, Share, Spread
from tests.unit.report.pages_of import POLLUTION
from tests.unit.report.summaries import SUMMARY, summary


def test_steps_leave_a_gap_where_nothing_is_known() -> None:
    found = drawing.steps((0.0, 0.5, None, 1.0))
    assert found.line == "M0 0H1V50H2M3 100H4"
    assert found.area == "M0 0V0H1V50H2H2V0ZM3 0V100H4H4V0Z"
    assert (found.top, found.width) == (1.0, 4)


def test_a_window_better_than_clean_lies_at_zero() -> None:
    assert drawing.steps((-0.5, 0.25)).line == "M0 0H1V100H2"


def test_a_flat_curve_has_a_scale() -> None:
    assert drawing.steps((0.0, 0.0)).top == 1.0


@pytest.mark.parametrize(("share", "colour"), [(0.0, "#440154"), (0.5, "#21908d"), (1.0, "#fde725"), (7.0, "#fde725")])
def test_colours_are_those_of_viridis(share: float, colour: str) -> None:
    assert drawing.colour(share) == colour


def test_brightness_rises_with_the_rate() -> None:
    def brightness(i: int) -> float:
        red, green, blue = bytes.fromhex(drawing.colour(i / 20)[1:])
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    values = [brightness(i) for i in range(21)]
    assert values == sorted(values)


def test_lost_is_above_zero_when_worse_whichever_way_the_metric_points() -> None:
    heat, turned = figures.heat(SUMMARY), figures.heat(summary(metric="stale rate"))
    assert heat is not None and turned is not None
    assert heat.lost == (0.0, 0.2, 0.4, None) and turned.lost == (0.0, -0.2, -0.4, None)
    assert heat.asks == ((1, 100), (101, 200), (201, 300), (301, 400))


def test_columns_are_shares_of_the_lookups_with_the_misses_left_open() -> None:
    spread = figures.spread(summary(pollution=POLLUTION))
    assert spread is not None
    ((layer, bars, sums),) = drawing.columns(spread)
    assert layer == "answer" and sums["foreign"] == 5 and sums["miss"] == 6
    first = [bar for bar in bars if bar.x == "0%"]
    assert [(bar.kind, bar.y, bar.height) for bar in first] == [("fresh", "75%", "25%")]
    assert [bar.kind for bar in bars if bar.x == "25%"] == ["fresh", "stale", "foreign"]


def test_tiers_and_layers_that_served_nothing_are_left_out() -> None:
    outcomes = {"answer": {"fresh": [1]}, "answer.l1": {"fresh": [1]}, "retrieval": {"fresh": [0], "miss": [4]}}
    spread = figures.spread(summary(pollution=POLLUTION | {"outcomes": outcomes}))
    assert isinstance(spread, Spread) and list(spread.outcomes) == ["answer"]


def test_whiskers_share_an_axis_that_holds_them_all() -> None:
    found, ticks = drawing.whiskers([Share("a", 1.5, 1.0, 1.6, ""), Share("b", None, None, None, "too little")])
    assert found[0].interval == (1.0, 1.6) and found[1].at == "" and found[1].why == "too little"
    assert [value for _, value in ticks] == [0.0, 0.5, 1.0]
    positions = [float(x.rstrip("%")) for x in (ticks[0][0], found[0].low, found[0].at, found[0].high)]
    assert positions == sorted(positions) and positions[0] > 0 and positions[-1] < 100


def test_the_plane_is_of_what_is_left_against_the_hits_lost() -> None:
    faulty, fixed = figures.plane(SUMMARY)
    assert (faulty.label, round(faulty.hits_lost, 9), faulty.left) == ("no fix", -0.3, 0.35)
    assert (fixed.label, fixed.hits_lost, fixed.left) == ("typed-tenant-key", 0.0, 0.0)
    assert faulty.low < faulty.left < faulty.high


def test_points_in_one_place_are_one_mark() -> None:
    points = [Point("no fix", -0.2, 0.5, 0.4, 0.6), *(Point(n, 0.0, 0.0, 0.0, 0.0) for n in "ab")]
    found = drawing.plane([*points, Point("c", 0.3, 0.1, 0.0, 0.2)])
    assert found is not None
    assert [(mark.numbers, mark.bare) for mark in found.marks] == [("no fix", True), ("1, 2", False), ("3", False)]
    assert drawing.plane(points[:1]) is None


def test_the_published_table_has_the_best_match_of_each_layer() -> None:
    matches = [{"layer": "a", "confidence": 0.2}, {"layer": "b", "confidence": 0.9}, {"layer": "a", "confidence": 0.5}]
    assert [m["confidence"] for m in figures.published(summary(published_attribution=matches))] == [0.5, 0.9]
