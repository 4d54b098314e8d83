from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from testbed.core.errors import InvalidInput
from testbed.diagnose.significance import detectable, interval, resampled_means, sign_flip_p


def noise(seed: int, n: int, memory: float = 0.0) -> np.ndarray:
    """A series in which each value remembers the one before."""
    rng = np.random.default_rng(seed)
    out = np.empty(n)
    last = 0.0
    for i, shock in enumerate(rng.normal(size=n)):
        last = memory * last + shock
        out[i] = last
    return out


def test_blocks_of_the_whole_circle_always_give_the_mean() -> None:
    values = np.array([[0.0, 1.0, 2.0, 6.0]])
    means = resampled_means(values, seed=1, block=4, resamples=10)
    assert means.shape == (10, 1)
    assert means == pytest.approx(2.25)


def test_a_block_runs_over_the_end_to_the_start() -> None:
    # Blocks of 2 of (0, 0, 3): sums 0, 3, 3 by start; then one single value to make three asks.
    means = resampled_means(np.array([[0.0, 0.0, 3.0]]), seed=1, block=2, resamples=500)
    assert set(np.round(means[:, 0] * 3)) == {0.0, 3.0, 6.0}
    assert means.mean() == pytest.approx(1.0, abs=0.15)


def test_all_series_take_the_same_asks() -> None:
    values = noise(1, 50)
    means = resampled_means(np.stack([values, values * 2 + 1]), seed=3)
    assert means[:, 1] == pytest.approx(means[:, 0] * 2 + 1)


def test_the_same_seed_and_name_give_the_same_interval_and_others_another() -> None:
    values = noise(2, 200)
    assert interval(values, seed=42, name="a") == interval(values, seed=42, name="a")
    assert interval(values, seed=42, name="a") != interval(values, seed=43, name="a")
    assert interval(values, seed=42, name="a") != interval(values, seed=42, name="b")


def test_an_interval_over_blocks_covers_what_it_says_where_neighbours_move_together() -> None:
    covered = {1: 0, 25: 0}
    for seed in range(120):
        values = noise(seed, 400, memory=0.8)
        for block in covered:
            low, high = np.percentile(resampled_means(values[None], seed=seed, block=block, resamples=200), [2.5, 97.5])
            covered[block] += low <= 0.0 <= high
    # Single asks pretend to know much more than they do; blocks of 25 come close to the 95 % they promise.
    assert covered[1] < 0.65 * 120
    assert covered[25] > 0.85 * 120


def test_the_detectable_difference_is_2_8_standard_errors() -> None:
    values = noise(5, 400)
    error = values.std() / np.sqrt(400)
    assert detectable(values, seed=1, block=1) == pytest.approx(2.80 * error, rel=0.08)


def test_no_difference_at_all_has_an_interval_of_zero_width_and_no_significance() -> None:
    zeros = np.zeros(100)
    assert interval(zeros, seed=1) == (0.0, 0.0, 0.0)
    assert not interval(zeros, seed=1).excludes_zero
    assert sign_flip_p(zeros, seed=1) == 1.0


def test_nothing_to_compare_is_unscored() -> None:
    nothing = np.array([])
    assert all(isnan(x) for x in interval(nothing, seed=1))
    assert isnan(detectable(nothing, seed=1))
    assert isnan(sign_flip_p(nothing, seed=1))
    with pytest.raises(InvalidInput, match="n_asks=0"):
        resampled_means(np.zeros((1, 0)), seed=1)


def test_sign_flips_of_single_asks_agree_with_the_permutation_test_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = noise(7, 10) + 0.5
    theirs = stats.permutation_test(
        (values, np.zeros(10)), lambda a, b: np.mean(a - b), permutation_type="samples", vectorized=False
    ).pvalue  # exact: 2^10 sign patterns are fewer than its resamples
    assert sign_flip_p(values, seed=1, block=1, resamples=20_000) == pytest.approx(theirs, abs=0.01)
