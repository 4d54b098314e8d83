"""The cache contract as a check over any sequence of calls, and what sequences are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from hypothesis import strategies as st

from testbed.core.clock import LogicalClock
from testbed.core.ports import Cache
from testbed.core.types import Key


class Step(NamedTuple):
    do: Literal["get", "put", "delete", "wait"]
    key: Key
    value: Any = None
    ttl_s: float | None = None


TEXTS = ("how long is it kept", "what is the time it is kept", "who owns it")
KEYS = tuple(
    Key.of(text=text, tenant=tenant, model=model) for text in TEXTS for tenant in ("a", "b") for model in ("m1", "m2")
)
# Texts that a semantic cache may take for one another: one vector, and the gate agrees.
ALIKE = {TEXTS[0]: (1.0, 0.0), TEXTS[1]: (1.0, 0.0), TEXTS[2]: (0.6, 0.8)}


def asks_the_same(a: Key, b: Key) -> bool:
    """Equal in every part but the text, and the two texts ask the same thing."""
    return a.without("text") == b.without("text") and ALIKE[a.get("text")] == ALIKE[b.get("text")]


def vectors() -> st.SearchStrategy[Any]:
    floats = st.floats(width=32, allow_nan=False)
    flat = st.lists(floats, max_size=6).map(lambda v: np.array(v, dtype=np.float32))
    return flat | st.lists(floats, min_size=4, max_size=4).map(lambda v: np.array(v, dtype=np.float32).reshape(2, 2))


def values() -> st.SearchStrategy[Any]:
    """Everything that the contract says a cache can hold, keys that look like our own markers included."""
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | vectors()
    names = st.text(max_size=4) | st.sampled_from(["$", "$f32", "$$f32"])
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=6
    )


def steps() -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        st.sampled_from(["get", "get", "put", "put", "delete", "wait"]),
        st.sampled_from(KEYS),
        values(),
        st.sampled_from([None, None, 1.0, 2.5]),
    )
    return st.lists(step, max_size=30)


def equal(a: Any, b: Any) -> bool:
    """Equal in value and type, arrays by shape and bits."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return bool(a == b)


def spoil(value: Any) -> None:
    """Change a value in place, as careless code does with what it got."""
    if isinstance(value, np.ndarray) and value.flags.writeable and value.size:
        value[...] = -7.25
    elif isinstance(value, list):
        value.append("spoiled")
    elif isinstance(value, dict):
        value["spoiled"] = True


def check(
    cache: Cache,
    clock: LogicalClock,
    sequence: Sequence[Step],
    same: Callable[[Key, Key], bool] = lambda a, b: False,
) -> int:
    """Play the calls against the cache and a dict; AssertionError when the cache is no dict with losses.

    Returns how many of the gets hit.
    """
    put: dict[Key, tuple[Any, float]] = {}
    n_hits = 0
    for step in sequence:
        if step.do == "wait":
            clock.move_to(clock.now() + 1.0)
        elif step.do == "put":
            value = _copy(step.value)
            cache.put(step.key, value, ttl_s=step.ttl_s)
            spoil(value)  # what the caller does with it afterwards is no business of the cache
            put[step.key] = (step.value, clock.now() + (step.ttl_s if step.ttl_s is not None else float("inf")))
        elif step.do == "delete":
            cache.delete(step.key)
            put.pop(step.key, None)
        else:
            got = cache.get(step.key)
            if got is None:
                continue
            n_hits += 1
            allowed = [v for k, (v, end) in put.items() if end > clock.now() and (k == step.key or same(k, step.key))]
            assert any(equal(got, v) for v in allowed), f"get({step.key}) gave {got!r}; allowed: {allowed!r}"
            spoil(got)
            again = cache.get(step.key)
            assert again is None or any(equal(again, v) for v in allowed), "changing a result changed the cache"
    fresh = cache.fresh()
    for key in KEYS:
        assert fresh.get(key) is None, f"fresh() holds {key}"
    fresh.put(KEYS[0], "fresh value")
    assert not equal(cache.get(KEYS[0]), "fresh value"), "fresh() shares entries"
    return n_hits


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_copy(v) for v in value]
    if isinstance(value, dict):
        return {k: _copy(v) for k, v in value.items()}
    return value
