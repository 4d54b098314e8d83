from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from testbed.diagnose.blame import counterfactual, sampled_shapley, shapley, shapley_by_ask
from testbed.diagnose.significance import interval, sign_flip_p

LAYERS = ("answer", "retrieval", "embedding", "text")
SUBSETS = [frozenset(c) for size in range(len(LAYERS) + 1) for c in combinations(LAYERS, size)]
scores = st.floats(0.0, 1.0)
games = st.fixed_dictionaries({subset: scores for subset in SUBSETS})


@given(values=games)
def test_the_shares_sum_to_the_whole_change(values: dict[frozenset[str], float]) -> None:
    total = values[frozenset(LAYERS)] - values[frozenset()]
    assert sum(shapley(values, LAYERS).values()) == pytest.approx(total, abs=1e-9)


@given(by_size=st.lists(scores, min_size=5, max_size=5))
def test_layers_that_do_the_same_get_the_same(by_size: list[float]) -> None:
    shares = shapley({subset: by_size[len(subset)] for subset in SUBSETS}, LAYERS)
    assert max(shares.values()) == pytest.approx(min(shares.values()), abs=1e-9)


@given(values=games, idle=st.sampled_from(LAYERS))
def test_a_layer_without_effect_gets_nothing(values: dict[frozenset[str], float], idle: str) -> None:
    shares = shapley({subset: values[subset - {idle}] for subset in SUBSETS}, LAYERS)
    assert shares[idle] == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=30)
@given(values=games, seed=st.integers(0, 2**32))
def test_sampled_shares_sum_exactly_and_lie_near_the_exact_ones(values: dict[frozenset[str], float], seed: int) -> None:
    sampled = sampled_shapley(values.__getitem__, LAYERS, seed=seed, pairs=200)
    exact = shapley(values, LAYERS)
    total = values[frozenset(LAYERS)] - values[frozenset()]
    assert sum(s.share for s in sampled.values()) == pytest.approx(total, abs=1e-9)
    for layer in LAYERS:
        assert abs(sampled[layer].share - exact[layer]) <= 6 * sampled[layer].error + 1e-9


@given(
    faulty=st.lists(st.booleans(), min_size=60, max_size=60),
    cured=st.lists(st.booleans(), min_size=60, max_size=60),
    seed=st.integers(0, 2**32),
)
def test_blame_of_the_clean_stack_itself_is_whole_and_of_the_faulty_one_none(
    faulty: list[bool], cured: list[bool], seed: int
) -> None:
    bad = np.array(faulty, dtype=float)
    assume(bad.mean() < 0.5)
    clean = np.ones(60)
    without = {"all": clean, "none": bad, "some": np.maximum(bad, np.array(cured, dtype=float))}
    found = {b.layer: b for b in counterfactual(clean, bad, without, seed=seed)}
    assert found["all"].share == found["all"].low == found["all"].high == pytest.approx(1.0)
    assert found["none"].share == found["none"].low == found["none"].high == 0.0
    some = found["some"]
    assert some.share is not None
    assert -1e-9 <= some.low <= some.share + 1e-9
    assert some.share <= some.high + 1e-9 <= 1.0 + 2e-9


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=200), st.integers(0, 2**32))
def test_an_interval_holds_its_mean_and_repeats_with_its_seed(deltas: list[float], seed: int) -> None:
    values = np.array(deltas)
    found = interval(values, seed=seed)
    assert found.low - 1e-9 <= values.mean() <= found.high + 1e-9
    assert found == interval(values, seed=seed)
    assert 0.0 < sign_flip_p(values, seed=seed) <= 1.0


@given(values=games, n=st.integers(1, 4), idle=st.sampled_from(LAYERS))
def test_shares_by_ask_average_to_the_shares_of_the_averages(
    values: dict[frozenset[str], float], n: int, idle: str
) -> None:
    asks = {subset: np.array([value * (i + 1) / n for i in range(n)]) for subset, value in values.items()}
    by_ask = shapley_by_ask(asks, LAYERS)
    whole = shapley({subset: float(found.mean()) for subset, found in asks.items()}, LAYERS)
    total = asks[frozenset(LAYERS)] - asks[frozenset()]
    assert np.abs(sum(by_ask.values()) - total).max() <= 1e-9
    for layer in LAYERS:
        assert float(by_ask[layer].mean()) == pytest.approx(whole[layer], abs=1e-9)
    assert np.abs(shapley_by_ask({s: asks[s - {idle}] for s in asks}, LAYERS)[idle]).max() <= 1e-12


@given(values=games)
def test_two_layers_that_can_stand_for_one_another_get_the_same(values: dict[frozenset[str], float]) -> None:
    def swapped(subset: frozenset[str]) -> frozenset[str]:
        other = {"answer": "retrieval", "retrieval": "answer"}
        return frozenset(other.get(name, name) for name in subset)

    even = {s: (values[s] + values[swapped(s)]) / 2 for s in values}
    shares = shapley(even, LAYERS)
    assert shares["answer"] == pytest.approx(shares["retrieval"], abs=1e-9)
