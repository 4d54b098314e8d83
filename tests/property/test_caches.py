"""Caches against models that are too simple to be wrong."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.caches import codec
from testbed.caches.memory import MemoryCache
from testbed.caches.semantic import SemanticCache
from testbed.caches.tiered import TieredCache
from testbed.core.ports import Vectors
from testbed.core.types import Key
from tests.contract.dict_with_losses import KEYS, Step, equal, steps, values


@settings(deadline=None)
@given(value=values(), expires_at_s=st.floats(min_value=0.5, max_value=1e9))
def test_a_value_comes_back_equal_in_value_and_type(value: Any, expires_at_s: float) -> None:
    entry = codec.pack(value, expires_at_s)
    assert equal(codec.unpack(entry, 0.0), value)
    assert codec.unpack(entry, expires_at_s) is None


@settings(deadline=None)
@given(value=values())
def test_equal_values_have_equal_bytes(value: Any) -> None:
    assert codec.pack(codec.unpack(codec.pack(value), 0.0)) == codec.pack(value)


@settings(deadline=None)
@given(sequence=steps(), capacity=st.integers(1, 4))
def test_a_bounded_memory_cache_is_an_lru_dict(sequence: list[Step], capacity: int) -> None:
    cache, model = MemoryCache(capacity), OrderedDict[Key, Any]()
    for step in sequence:
        if step.do == "put":
            cache.put(step.key, step.value)
            model[step.key] = step.value
            model.move_to_end(step.key)
            if len(model) > capacity:
                model.popitem(last=False)
        elif step.do == "delete":
            cache.delete(step.key)
            model.pop(step.key, None)
        else:
            if step.key in model:
                model.move_to_end(step.key)
            assert equal(cache.get(step.key), model.get(step.key))
        assert len(cache) == len(model)


@settings(deadline=None)
@given(sequence=steps(), capacity=st.integers(1, 3))
def test_a_tiered_cache_over_an_unbounded_tier_is_a_dict(sequence: list[Step], capacity: int) -> None:
    cache, model = TieredCache({"l1": MemoryCache(capacity), "l2": MemoryCache()}), dict[Key, Any]()
    for step in sequence:
        if step.do == "put":
            cache.put(step.key, step.value)
            model[step.key] = step.value
        elif step.do == "delete":
            cache.delete(step.key)
            model.pop(step.key, None)
        assert equal(cache.get(step.key), model.get(step.key))


def unit() -> st.SearchStrategy[tuple[float, ...]]:
    whole = st.lists(st.integers(-2, 2), min_size=3, max_size=3).filter(any)
    return whole.map(lambda v: tuple((np.array(v) / np.linalg.norm(v)).tolist()))


@settings(deadline=None)
@given(
    vectors=st.lists(unit(), min_size=2, max_size=8),
    edits=st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=12),
    asked=st.integers(0, 7),
    threshold=st.sampled_from([-1.0, 0.0, 0.5, 0.9, 1.0]),
    refused=st.integers(0, 7),
)
def test_a_semantic_cache_serves_what_a_linear_search_finds(
    vectors: list[tuple[float, ...]], edits: list[tuple[bool, int]], asked: int, threshold: float, refused: int
) -> None:
    texts = {f"t{i}": np.array(v, dtype=np.float32) for i, v in enumerate(vectors)}

    def embed(text: str) -> Vectors:
        return texts[text]

    def gate(new: str, stored: str) -> bool:
        return stored != f"t{refused}"

    cache, held = SemanticCache(embed, threshold, gate), dict[str, str]()
    for is_put, i in edits:
        text = f"t{i % len(texts)}"
        if is_put:
            cache.put(Key.of(text=text), text)
            held[text] = text
        else:
            cache.delete(Key.of(text=text))
            held.pop(text, None)
    query = f"t{asked % len(texts)}"
    rated = sorted(
        (-round(float(texts[t].astype(np.float64) @ texts[query].astype(np.float64)), 6), t)
        for t in held
        if gate(query, t)
    )
    near = [t for score, t in rated if -score >= threshold]
    expected = query if query in held else (near[0] if near else None)
    assert cache.get(Key.of(text=query)) == expected
    assert len(cache) == len(held)


def test_the_keys_of_the_contract_differ_in_each_part() -> None:
    assert len({k.digest() for k in KEYS}) == len(KEYS) == 12
