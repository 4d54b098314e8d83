from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from testbed.caches.semantic import SemanticCache
from testbed.core.clock import LogicalClock
from testbed.core.errors import InvalidInput
from testbed.core.ports import Vectors
from testbed.core.types import Key

# Inner products with "q": near 0.96, nearer 0.98 (rounded), far 0.6, twin and apart exactly 0.8.
VECTORS = {
    "q": (1.0, 0.0),
    "near": (0.96, 0.28),
    "nearer": (0.98, 0.198997),
    "far": (0.6, 0.8),
    "twin": (0.8, 0.6),
    "apart": (0.8, -0.6),
}


def embed(text: str) -> Vectors:
    return np.array(VECTORS[text], dtype=np.float32)


def everything(asked: str, stored: str) -> bool:
    return True


def cache(
    threshold: float = 0.9, gate: Callable[[str, str], bool] = everything, capacity: int | None = None
) -> SemanticCache:
    return SemanticCache(embed, threshold, gate, capacity)


def key(text: str, tenant: str = "a") -> Key:
    return Key.of(text=text, tenant=tenant)


def test_the_most_similar_stored_text_answers() -> None:
    held = cache()
    for text in ("near", "nearer", "far"):
        held.put(key(text), text)
    assert held.get(key("q")) == "nearer"


def test_below_the_threshold_nobody_answers() -> None:
    held = cache()
    held.put(key("far"), "far")
    assert held.get(key("q")) is None


def test_a_score_equal_to_the_threshold_is_enough() -> None:
    held = cache(0.6)
    held.put(key("far"), "far")
    assert held.get(key("q")) == "far"


def test_the_gate_sends_the_search_on_to_the_next_text() -> None:
    asked: list[tuple[str, str]] = []

    def gate(text: str, stored: str) -> bool:
        asked.append((text, stored))
        return stored == "near"

    held = cache(gate=gate)
    for text in ("near", "nearer"):
        held.put(key(text), text)
    assert held.get(key("q")) == "near"
    assert asked == [("q", "nearer"), ("q", "near")]


def test_the_same_text_answers_for_itself_whatever_the_gate_says() -> None:
    held = cache(gate=lambda a, b: False)
    held.put(key("q"), "own")
    assert held.get(key("q")) == "own"


def test_texts_of_another_group_never_answer() -> None:
    held = cache()
    held.put(key("near", tenant="b"), "of b")
    assert held.get(key("q", tenant="a")) is None


@pytest.mark.parametrize("order", [("twin", "apart"), ("apart", "twin")])
def test_exact_ties_go_to_the_smaller_text_whatever_came_first(order: tuple[str, str]) -> None:
    held = cache(0.5)
    for text in order:
        held.put(key(text), text)
    assert held.get(key("q")) == "apart"


def test_a_deleted_text_no_longer_answers_and_the_others_still_do() -> None:
    held = cache()
    for text in ("nearer", "near", "far"):
        held.put(key(text), text)
    held.delete(key("nearer"))
    assert held.get(key("q")) == "near"
    assert held.get(key("far")) == "far"
    assert len(held) == 2


def test_an_expired_text_leaves_the_word_to_the_next() -> None:
    clock = LogicalClock()
    held = SemanticCache(embed, 0.9, everything, clock=clock)
    held.put(key("nearer"), "nearer", ttl_s=1.0)
    held.put(key("near"), "near")
    clock.move_to(1.0)
    assert held.get(key("q")) == "near"


def test_the_entry_used_longest_ago_goes_first_over_all_groups() -> None:
    held = cache(capacity=2)
    held.put(key("nearer"), 1)
    held.put(key("far", tenant="b"), 2)
    assert held.get(key("q")) == 1  # used as a stand-in counts as used
    held.put(key("near", tenant="b"), 3)
    assert held.get(key("far", tenant="b")) is None
    assert held.get(key("nearer")) == 1


def test_a_capacity_below_one_is_refused() -> None:
    with pytest.raises(InvalidInput, match="capacity=0"):
        cache(capacity=0)
