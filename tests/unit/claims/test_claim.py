"""What a finding is made of: intervals, limits, JSON, charts."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest

from testbed.claims import plot
from testbed.claims.claim import Interval, Limit, interval, plain
from testbed.core.errors import BrokenContract


def test_interval_is_the_t_interval():
    # mean 2, sd 1, n 3: half width 4.303 / sqrt(3)
    found = interval("x", [1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.low == pytest.approx(2 - 4.303 / math.sqrt(3), abs=1e-9)
    assert found.high == pytest.approx(2 + 4.303 / math.sqrt(3), abs=1e-9)


def test_one_seed_has_no_interval():
    assert math.isnan(interval("x", [1.0]).low)


@pytest.mark.parametrize(
    ("limit", "holds"),
    [
        (Limit("x", 0.5, 0.5), True),
        (Limit("x", 0.5, 0.4), False),
        (Limit("x", 0.5, 0.6, is_floor=True), False),
        (Limit("x", 0.5, 0.4, is_floor=True), True),
        (Limit("x", math.nan, 0.4), False),
    ],
)
def test_a_figure_past_its_limit_is_an_error(limit, holds):
    if holds:
        assert limit.check() is limit
    else:
        with pytest.raises(BrokenContract, match="limit"):
            limit.check()


def test_plain_has_no_nan_and_keeps_names():
    value = {"a": math.nan, 1: (Interval("x", 0.1 + 0.2, 0, 1, 2), True)}
    assert plain(value) == {"a": None, "1": [{"name": "x", "mean": 0.3, "low": 0, "high": 1, "n": 2}, True]}


def test_charts_are_well_formed_and_repeatable():
    lines = plot.lines("a < b & c", "x", "y", {"one": [(0.0, 0.0), (2.0, 1.0)], "two": [(1.0, 0.5)]})
    bars = plot.bars("t", "y", {"g": {"one": 1.0, "two": 0.5}, "h": {"two": 2.0}})
    for svg in (lines, bars):
        ET.fromstring(svg)
    assert lines.count("<polyline") == 2 and bars.count("<rect") == 1 + 3 + 2
    assert lines == plot.lines("a < b & c", "x", "y", {"one": [(0.0, 0.0), (2.0, 1.0)], "two": [(1.0, 0.5)]})


def test_a_chart_of_zeros_is_a_chart():
    ET.fromstring(plot.bars("t", "y", {"g": {"one": 0.0}}))
    ET.fromstring(plot.lines("t", "x", "y", {"one": [(1.0, 0.0)]}))
