from __future__ import annotations

from math import isnan

import numpy as np
import pytest

from testbed.core.errors import InvalidInput
from testbed.diagnose.significance import (
    difference,
    holm,
    interval,
    largest_of_all_p,
    long_block,
    n_effective,
    numbered,
    pooled_means,
    resampled,
    resampled_means,
    sign_flip_p,
    widened,
)


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
    assert difference(values, seed=1, block=1)[1] == pytest.approx(2.80 * error, rel=0.08)


def test_no_difference_at_all_has_an_interval_of_zero_width_and_no_significance() -> None:
    zeros = np.zeros(100)
    assert interval(zeros, seed=1) == (0.0, 0.0, 0.0)
    assert not interval(zeros, seed=1).excludes_zero
    assert sign_flip_p(zeros, seed=1) == 1.0


def test_nothing_to_compare_is_unscored() -> None:
    nothing = np.array([])
    assert all(isnan(x) for x in interval(nothing, seed=1))
    assert isnan(difference(nothing, seed=1)[1])
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


@pytest.mark.parametrize("memory", [0.5, 0.8])
def test_a_95_percent_interval_covers_the_true_mean_in_93_to_97_of_100_streams(memory: float) -> None:
    n_streams, n_asks, burn_in = 3000, 400, 100
    shocks = np.random.default_rng(11).normal(size=(n_asks + burn_in, n_streams))
    values, last = np.empty_like(shocks), np.zeros(n_streams)
    for place, shock in enumerate(shocks):
        values[place] = last = memory * last + shock
    found = [interval(stream, seed=seed) for seed, stream in enumerate(values[burn_in:].T)]
    covered = sum(each.low <= 0.0 <= each.high for each in found) / n_streams
    assert 0.93 <= covered <= 0.97


def fates(seed: int, n: int = 400, n_questions: int = 96) -> tuple[list[int], np.ndarray]:
    """A stream of popular and rare questions; from some time on a few of them are answered better, as many worse."""
    rng = np.random.default_rng(seed)
    popular = 1.0 / np.arange(1, n_questions + 1) ** 0.9
    asked = rng.choice(n_questions, size=n, p=popular / popular.sum())
    fate = rng.choice([-1.0, 0.0, 1.0], size=n_questions, p=[0.06, 0.88, 0.06])
    since = rng.uniform(0, n, size=n_questions)
    return list(asked), np.where(np.arange(n) >= since[asked], fate[asked], 0.0)


def test_an_interval_covers_the_true_mean_where_the_asks_of_a_question_share_its_fate() -> None:
    """What a cache keeps comes back for as long as it is asked for: no block of neighbours holds that."""
    covered = {"blocks": 0, "questions": 0}
    for seed in range(300):
        asked, deltas = fates(seed)
        for way, questions in (("blocks", None), ("questions", numbered(asked))):
            found = interval(deltas, seed=seed, questions=questions)
            covered[way] += found.low <= 0.0 <= found.high
    assert covered["blocks"] / 300 < 0.75
    assert 0.93 <= covered["questions"] / 300 <= 0.98


def test_of_blocks_and_questions_the_one_counts_that_leaves_more_doubt() -> None:
    alike, far = np.repeat([0.0, 1.0, 0.0, 1.0], 100), np.tile([0.0, 1.0], 200)
    questions = numbered(list(range(20)) * 20)
    both = resampled([np.stack([alike, far])], seed=1, questions=[questions])
    blocks = resampled([np.stack([alike, far])], seed=1)
    assert both.means[:, 0] == pytest.approx(blocks.means[:, 0])  # neighbours share what they are, questions do not
    assert both.means[:, 1].std() > 0.05 > blocks.means[:, 1].std()
    assert both.wider[0] == blocks.wider[0] == widened(400, 40)
    assert both.wider[1] == pytest.approx(widened(400, 20))  # twenty questions of twenty asks


def test_questions_are_counted_by_their_share_of_the_asks() -> None:
    assert list(numbered(["b", "a", "b"])) == [0, 1, 0]
    assert n_effective(numbered("aabb")) == 2.0
    assert n_effective(numbered("aaab")) == pytest.approx(1.6)


def test_resamples_of_questions_that_nobody_scored_are_left_out() -> None:
    """Numbers of questions of which no ask is known leave resamples with nothing in them."""
    values, questions = np.array([1.0, 0.0, 1.0, 0.0, 1.0]), np.array([40, 47, 55, 60, 99])
    found = interval(values, seed=1, questions=questions)
    assert found.low <= found.mean <= found.high
    assert difference(values, seed=1, questions=questions)[1] > 0


def test_what_is_all_one_question_is_left_to_the_blocks() -> None:
    values = noise(3, 200)
    assert interval(values, seed=1, questions=numbered([0] * 200)) == interval(values, seed=1)


def test_few_blocks_widen_the_interval_by_students_t() -> None:
    stats = pytest.importorskip("scipy.stats")
    for n_asks, block in ((400, 40), (120, 40), (400, 1)):
        n_blocks = n_asks / block
        theirs = np.sqrt(n_blocks / (n_blocks - 1)) * stats.t.ppf(0.975, n_blocks - 1) / stats.norm.ppf(0.975)
        assert widened(n_asks, block) == pytest.approx(theirs, rel=0.04)
    assert [long_block(n) for n in (1, 12, 120, 400, 9999)] == [1, 4, 40, 40, 40]


def test_holm_gives_what_the_textbook_example_gives() -> None:
    # 0.01 x 4, 0.02 x 3, 0.03 x 2, 0.04 x 1, and none is smaller than one before it.
    assert holm([0.03, 0.01, float("nan"), 0.04, 0.02])[:2] == pytest.approx([0.06, 0.04])
    assert isnan(holm([0.5, float("nan")])[1])
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([]) == []


def test_one_run_is_resampled_as_its_blocks_are_and_unscored_asks_are_left_out() -> None:
    values = noise(4, 200) + 1.0
    alone = pooled_means([values[None]], seed=1, name="x", resamples=300)
    assert alone[:, 0] == pytest.approx(resampled_means(values[None], seed=1, name="x", block=40, resamples=300)[:, 0])
    holes = values.copy()
    holes[::2] = np.nan
    assert pooled_means([holes[None]], seed=1, resamples=300).mean() == pytest.approx(values[1::2].mean(), abs=0.1)


def test_runs_that_differ_make_a_pooled_mean_less_sure_than_one_long_run() -> None:
    runs = [np.full((1, 100), level) for level in (0.0, 1.0, 2.0)]
    means = pooled_means(runs, seed=1, resamples=2000)[:, 0]
    assert means.mean() == pytest.approx(1.0, abs=0.06)
    assert means.std() == pytest.approx(np.sqrt(2 / 3 / 3), rel=0.1)  # of the mean of three draws of 0, 1, 2


def test_series_that_move_together_count_as_one_test_and_others_do_not() -> None:
    rng = np.random.default_rng(3)
    one, others = rng.normal(size=400) + 0.13, rng.normal(size=(20, 400))
    together, apart = np.stack([one] * 20), np.vstack([one[None], others[1:]])
    p = []
    for series in (one[None], together, apart):
        means = pooled_means([series], seed=5, resamples=2000, block=8)
        p.append(float(largest_of_all_p(series.mean(axis=1), means, 1.0)[0]))
    assert p[1] == pytest.approx(p[0], abs=0.005)
    assert p[2] > 5 * p[0]


def test_a_difference_without_any_spread_is_certain_or_none_at_all() -> None:
    series = np.vstack([np.full(100, -0.5), np.zeros(100), noise(1, 100)])
    means = pooled_means([series], seed=1, resamples=1000)
    certain, none, _ = largest_of_all_p(series.mean(axis=1), means, 1.0)
    assert certain == pytest.approx(1 / 1001) and none == 1.0
