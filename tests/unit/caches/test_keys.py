"""What each key builder takes for one key, by example."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.caches.keys import blake3_bytes, encode, naive, published_after, published_before, robust, robust_key
from testbed.core.errors import InvalidInput
from testbed.core.types import Key

PARTS = dict(tenant="a", model="m", weights="w", tokenizer="t", prompt="p", epoch=1, text="q")


def vector(dtype=np.float32):
    return np.linspace(-1, 1, 24, dtype=np.float32).astype(dtype)


def test_naive_key_merges_two_sets_of_parts():
    assert naive(Key.of(a="x:y", b="z")) == naive(Key.of(a="x", b="y:z"))
    assert naive(Key.of(tenant="x")) == naive(Key.of(text="x"))


def test_robust_key_tells_them_apart():
    assert robust(Key.of(a="x:y", b="z")) != robust(Key.of(a="x", b="y:z"))
    assert robust(Key.of(tenant="x")) != robust(Key.of(text="x"))


def test_before_the_fix_layout_and_dtype_change_the_key():
    grid = vector().reshape(4, 6)
    assert published_before(grid) != published_before(np.asfortranarray(grid))
    assert published_before(vector()) != published_before(vector(np.float64))


def test_before_the_fix_shape_and_dtype_are_not_in_the_key():
    assert published_before(vector().reshape(4, 6)) == published_before(vector().reshape(6, 4))
    assert published_before(np.array([200], np.uint8)) == published_before(np.array([-56], np.int8))


def test_the_fix_repairs_layout_but_not_half_precision():
    grid = vector().reshape(4, 6)
    assert published_after(grid) == published_after(np.asfortranarray(grid))
    assert published_after(vector()) == published_after(vector(np.float64))
    assert published_after(vector()) != published_after(vector(np.float16))


def test_the_fix_merges_what_begins_alike():
    one, other = vector().reshape(1, 24), vector().reshape(1, 24).copy()
    other[0, 16:] = 7
    assert published_after(one) == published_after(other)


def test_the_fix_makes_a_key_that_nan_never_finds_again():
    broken = np.full(4, np.nan, np.float32)
    assert published_after(broken) != published_after(broken)


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_in_the_robust_key(part):
    other = PARTS | {part: 2 if part == "epoch" else "other"}
    assert robust_key(**PARTS) != robust_key(**other)


@pytest.mark.parametrize("part", PARTS)
def test_no_part_of_the_robust_key_can_be_left_out(part):
    with pytest.raises(TypeError):
        robust_key(**{name: value for name, value in PARTS.items() if name != part})


def test_robust_key_has_256_bits_and_is_the_same_everywhere():
    key = robust_key(**PARTS)
    assert key == "d8f40db2714395e0299b9a3db29510a1cc3d256fc05f479bb1f726dc2f3cddee"
    assert len(bytes.fromhex(key)) == 32


def test_blake3_of_the_empty_input_is_the_published_one():
    assert blake3_bytes(b"").hex() == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), ("1", 1), ("a", b"a"), (None, ""), ([1, 2], [[1], 2]), ({}, [])]
)
def test_kinds_do_not_mix(one, other):
    assert encode(one) != encode(other)


def test_equal_arrays_have_one_form_whatever_their_layout_and_width():
    grid = vector().reshape(4, 6)
    strided = np.repeat(grid, 2, axis=1)[:, ::2]
    forms = [grid, np.asfortranarray(grid), strided, grid.astype(np.float64), grid.astype(">f4")]
    assert len({encode(form) for form in forms}) == 1
    assert encode(np.array([0.0], np.float32)) == encode(np.array([-0.0], np.float32))
    assert encode(0.0) == encode(-0.0)
    assert encode(np.array([200], np.uint8)) == encode(np.array([200], np.int64))


def test_different_arrays_do_not():
    grid = vector().reshape(4, 6)
    assert encode(grid) != encode(grid.reshape(6, 4))
    assert encode(np.array([200], np.uint8)) != encode(np.array([-56], np.int8))
    assert encode(np.array([1], np.int64)) != encode(np.array([1], np.float32))


@pytest.mark.parametrize(
    "bad",
    [
        float("nan"),
        float("inf"),
        np.array([np.nan], np.float32),
        np.array([np.inf]),
        np.array([1.0], np.float16),
        np.array([0.1]),
        np.array([1e300]),
        np.array([2**63], np.uint64),
        np.array(["a"]),
        np.array([1j]),
        {1: "a"},
        {"a": print},
        {1.5},
    ],
    ids=repr,
)
def test_what_has_no_exact_form_is_refused(bad):
    with pytest.raises(InvalidInput):
        encode(bad)
