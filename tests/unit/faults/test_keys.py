from __future__ import annotations

from typing import Any

from testbed.core.scenario import Arm
from testbed.core.types import Key
from testbed.faults.keys import ShortHash
from testbed.fixes.guard import KeyCheck
from testbed.run.arms import changed
from tests.contract.small_stack import small_stack
from tests.contract.test_changes import context

KEYS = [Key.of(text=f"question {n}", tenant="acme", model="m", role="query") for n in range(40)]


def got(*changes: Any, layer: str = "retrieval") -> list[int | None]:
    """What each key gives back when all were put, each with its number."""
    stack = small_stack()
    fixes = tuple(c for c in changes if isinstance(c, KeyCheck))
    with changed(stack, Arm("x", tuple(c for c in changes if c not in fixes), fixes), context()):
        for n, key in enumerate(KEYS):
            stack.layers[layer].put(key, n)
        return [stack.layers[layer].get(key) for key in KEYS]


def test_a_hash_of_few_bits_gives_one_key_the_value_of_another() -> None:
    values = got(ShortHash("retrieval", 4))
    assert None not in values and len(set(values)) <= 16
    assert got(ShortHash("retrieval", 64)) == list(range(len(KEYS)))


def test_a_hit_under_another_key_is_refused() -> None:
    values = got(ShortHash("retrieval", 4), KeyCheck())
    assert all(value in (None, n) for n, value in enumerate(values))
    assert 0 < sum(value is not None for value in values) <= 16


def test_a_near_match_of_the_answer_cache_is_not_refused() -> None:
    stack = small_stack()
    with changed(stack, Arm("x", (), (KeyCheck(),)), context()):
        stack.layers["answer"].put(Key.of(text="how long", tenant="acme"), "A")
        assert stack.layers["answer"].get(Key.of(text="how long", tenant="acme")) == "A"
        assert stack.layers["answer"].get(Key.of(text="how long", tenant="birch")) is None
