"""Runs over seeds in one row: means with intervals, shares with intervals, promises by seed."""

from __future__ import annotations

import math

import pytest

from testbed.diagnose import over_seeds
from testbed.diagnose.grid import drop_is_significant, rows
from tests.unit.diagnose.outcomes import arm, outcome


def test_a_row_is_a_variant_at_a_level_over_its_seeds() -> None:
    runs = [
        outcome({"clean": arm(0.9), "faulty": arm(0.9 - 0.1 * seed, violated={"freshness": seed})}, seed=seed)
        for seed in (1, 2, 3)
    ]
    runs.append(outcome({"clean": arm(0.8), "faulty": arm(0.8)}, seed=1, level=0.1, applies=False))
    full, low = rows(runs)
    assert (full.level, full.seeds, full.held) == (1.0, (1, 2, 3), 3)
    assert full.drop.mean == pytest.approx(0.2)
    # s = 0.1, n = 3, t(2) = 4.303: half a width of 4.303 * 0.1 / sqrt(3)
    assert full.drop.high - full.drop.mean == pytest.approx(4.303 * 0.1 / math.sqrt(3))
    assert (full.violates["freshness"].hits, full.violates["freshness"].n, full.clean_violates) == (3, 3, {})
    assert low.held == 0 and low.violates == {} and math.isnan(low.drop.low)


def test_failures_are_told_by_seed() -> None:
    bad = outcome({"clean": arm(0.9, violated={"lineage": 1}), "faulty": arm(0.9)}, seed=7, failures=["no drop"])
    (row,) = rows([outcome({"clean": arm(0.9), "faulty": arm(0.1)}, seed=6), bad])
    assert row.failures == {7: ("no drop",)} and row.clean_violates["lineage"].share == 0.5


def test_blame_over_seeds_is_of_the_seeds_at_which_there_is_a_drop() -> None:
    clear, none = {"mean": -0.4, "low": -0.5, "high": -0.3}, {"mean": -0.1, "low": -0.3, "high": 0.1}

    def run(seed: int, answer: float, delta: dict[str, float]) -> dict[str, object]:
        arms = {"clean": arm(0.9), "faulty": arm(0.5), "faulty+cure": arm(0.9), "faulty-without:text": arm(0.5)}
        return outcome(arms | {"faulty-without:answer": arm(answer)}, seed=seed, deltas={"faulty": delta})

    tiny = run(4, 0.1, clear)
    tiny["arms"]["faulty"]["value"] = 0.899  # type: ignore[index]
    (row,) = rows([run(1, 0.9, clear), run(2, 0.7, clear), run(3, 0.1, none), tiny])
    assert list(row.blame) == ["answer", "text"]
    # shares 1 and 0.5: t(1) = 12.706, s = 0.354, half a width of 12.706 * 0.354 / sqrt(2)
    assert (row.blame["answer"].mean, row.blame["answer"].n) == (pytest.approx(0.75), 2)
    assert row.blame["answer"].high - 0.75 == pytest.approx(12.706 * 0.25)
    assert row.blame["text"].mean == 0.0


@pytest.mark.parametrize(
    ("metric", "low", "high", "significant"),
    [("true", -0.2, -0.1, True), ("true", -0.2, 0.0, False), ("leak rate", 0.1, 0.2, True), ("true", 0.1, 0.2, False)],
)
def test_a_drop_is_significant_when_its_interval_is_on_the_worse_side(
    metric: str, low: float, high: float, significant: bool
) -> None:
    run = outcome({}, metric=metric, deltas={"faulty": {"mean": (low + high) / 2, "low": low, "high": high}})
    assert drop_is_significant(run) is significant


def test_of_a_delta_without_an_interval_nothing_is_significant() -> None:
    assert not drop_is_significant(outcome({}, deltas={"faulty": {"mean": None, "low": None, "high": None}}))


def test_no_alarm_in_300_runs_bounds_the_rate() -> None:
    none = over_seeds.share(0, 300)
    assert none.low == 0.0 and none.high == pytest.approx(1 - 0.025 ** (1 / 300), abs=1e-9)  # exact for no hit


def test_the_interval_of_a_share_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for hits, n in ((0, 5), (1, 10), (7, 10), (10, 10), (150, 300)):
        found, exact = over_seeds.share(hits, n), stats.binomtest(hits, n).proportion_ci(0.95, "exact")
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-6)


def test_the_interval_of_a_mean_agrees_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = [0.1, 0.4, 0.35, 0.2, 0.6]
    found = over_seeds.mean(values)
    low, high = stats.t.interval(0.95, 4, loc=found.mean, scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)
    assert math.isnan(over_seeds.mean([]).mean)
