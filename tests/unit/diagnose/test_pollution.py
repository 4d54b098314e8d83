from __future__ import annotations

import numpy as np
import pytest

from testbed.core.history import History
from testbed.diagnose.pollution import alarm, change_points, spread
from testbed.metrics.scores import score_history
from testbed.metrics.serving import serve
from tests.histories.trace import DictStack

NAN = float("nan")


def test_the_spread_of_a_leak() -> None:
    stack = DictStack(["acme", "birch"], {"embedding": frozenset({"tenant"})})
    for tenant, question in (("acme", "a"), ("birch", "b"), ("birch", "a"), ("birch", "a")):
        stack.ask(tenant, question)
    history = History(stack.evidence())
    asks = score_history(history)
    found = spread(serve(history), asks, np.array([0.0, 0.0, 1.0, 1.0]), [0.0, -1.0], n_windows=2)
    assert found.outcomes["embedding"]["miss"] == (2, 0)
    assert found.outcomes["embedding"]["foreign"] == (0, 1)
    assert found.outcomes["answer"]["foreign"] == (0, 1)
    # The entry that leaked, and the ranking and the answer that were made from it, all at the third ask.
    assert found.poisoned == (0, 3 + 1)  # and acme's text, which birch was shown
    assert found.blast_radius == 2
    assert found.first_bad_s == asks[2].at_s
    assert found.time_to_detect_s is None
    assert found.time_to_clean_s == 1.0


def test_nothing_bad_was_served_by_a_clean_stack() -> None:
    stack = DictStack(["acme"])
    stack.ask("acme", "a")
    history = History(stack.evidence())
    found = spread(serve(history), score_history(history), np.zeros(1), [0.0])
    assert (found.poisoned, found.blast_radius, found.first_bad_s) == ((0,), 0, None)
    assert (found.time_to_detect_s, found.time_to_clean_s, found.changes) == (None, None, ())


def test_the_alarm_goes_off_when_the_cumulated_loss_exceeds_three() -> None:
    # Each loss counts 0.95 over what is tolerated: the fourth passes 3.
    assert alarm(np.array([0.0] * 10 + [1.0] * 5)) == 13
    assert alarm(np.array([0.0] * 10 + [1.0, NAN] * 5)) == 16


def test_a_tolerated_loss_and_rare_bad_luck_raise_no_alarm() -> None:
    assert alarm(np.full(1000, 0.05)) is None
    assert alarm(np.array(([1.0] + [0.0] * 30) * 20)) is None


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_changes_of_level_are_found_where_they_are(noise: float) -> None:
    rng = np.random.default_rng(3)
    curve = np.array([0.0] * 12 + [-0.5] * 8 + [-0.2] * 12) + noise * rng.normal(size=32)
    assert change_points(list(curve)) == [12, 20]


def test_a_flat_or_noisy_curve_without_a_step_has_no_change() -> None:
    rng = np.random.default_rng(5)
    assert change_points([0.0] * 32) == []
    assert change_points([0.1 + 0.2] * 16 + [0.3] * 16) == []
    assert sum(bool(change_points(list(0.1 * rng.normal(size=32)))) for _ in range(50)) <= 10


def test_unknown_windows_are_bridged() -> None:
    assert change_points([NAN, NAN, NAN]) == []
    assert change_points([0.0, NAN, 0.0, 0.0, NAN, 1.0, 1.0, NAN, 1.0, 1.0]) == [5]
