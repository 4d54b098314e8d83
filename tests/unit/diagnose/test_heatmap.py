from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from testbed.diagnose.delta import curve, windows
from testbed.diagnose.heatmap import Heatmap, heatmap, joint_attribution, resample
from testbed.metrics.serving import Served

NAN = float("nan")


def test_windows_cover_the_stream_once_and_are_nearly_equal() -> None:
    cut = windows(10, 4)
    assert [list(w) for w in cut] == [[0, 1], [2, 3, 4], [5, 6], [7, 8, 9]]
    assert [len(w) for w in windows(3, 32)] == [1, 1, 1]
    assert len(windows(0, 4)) == 1


def test_a_curve_averages_each_window_over_the_scored_asks() -> None:
    found = curve(np.array([1.0, NAN, 0.0, -1.0, NAN, NAN]), 3)
    assert found[:2] == [1.0, -0.5]
    assert isnan(found[2])


def test_rates_by_layer_and_window() -> None:
    lookups = [
        Served(10, "answer", "miss"),
        Served(11, "answer", "fresh"),
        Served(12, "answer", "foreign"),
        Served(12, "text", "fresh"),
        Served(99, "answer", "fresh"),  # not one of these asks
    ]
    found = heatmap(lookups, [10, 11, 12, 13], np.array([0.0, 0.0, -1.0, NAN]), ["answer", "text"], 2)
    assert found.hits["answer"] == (0.5, 1.0)
    assert found.valid_hits["answer"] == (0.5, 0.0)
    assert isnan(found.hits["text"][0])
    assert found.hits["text"][1] == 1.0
    assert found.delta == (0.0, -1.0)


def test_resampling_keeps_a_straight_line_straight_and_bridges_unknown_windows() -> None:
    out = resample([0.0, NAN, 2.0, 3.0], 128)
    assert len(out) == 128
    inner = out[16:112]
    assert np.diff(inner) == pytest.approx(np.full(len(inner) - 1, 4 / 128))
    assert (out[0], out[-1]) == (0.0, 3.0)
    assert np.isnan(resample([NAN, NAN], 8)).all()


def test_the_layer_whose_hit_rate_moves_with_the_difference_is_named_with_more_confidence() -> None:
    step = (*([0.2] * 16), *([0.8] * 16))
    slow = tuple(float(x) for x in np.linspace(0.2, 0.3, 32))
    heat = Heatmap(("answer", "text"), {"answer": step, "text": slow}, {}, tuple(0.2 - x for x in step))
    found = joint_attribution(heat)
    assert found[0].layer == "answer"
    assert found[0].peak == found[0].inflection == pytest.approx(64, abs=2)
    assert found[0].confidence == pytest.approx(1.0)
    assert -0.6 <= found[0].delta <= 0.0


@pytest.mark.parametrize("delta", [(0.0,) * 8, (NAN,) * 8])
def test_without_any_difference_nothing_is_attributed(delta: tuple[float, ...]) -> None:
    assert joint_attribution(Heatmap(("answer",), {"answer": (0.1, 0.9) * 4}, {}, delta)) == []
