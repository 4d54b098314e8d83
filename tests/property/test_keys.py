"""The robust key is injective: its form can be read back."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from testbed.caches.keys import encode, naive, robust, robust_key
from testbed.core.types import Key

TEXTS = st.text(st.characters(), max_size=12)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | st.integers() | FLOATS | TEXTS | st.binary(max_size=12)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12
)


def decode(raw: bytes):
    """The value of an encoding: if this works for every value, no two values share one."""
    value, rest = _decode(raw)
    assert rest == b""
    return value


def _decode(raw):
    tag, length = raw[:1], int.from_bytes(raw[1:9], "big")
    content, rest = raw[9 : 9 + length], raw[9 + length :]
    if tag == b"N":
        return None, rest
    if tag == b"B":
        return content == b"\x01", rest
    if tag == b"I":
        return int.from_bytes(content, "big", signed=True), rest
    if tag == b"F":
        return struct.unpack(">d", content)[0], rest
    if tag == b"S":
        return content.decode("utf-8", "surrogatepass"), rest
    if tag == b"Y":
        return content, rest
    items = []
    while content:
        item, content = _decode(content)
        items.append(item)
    return (items if tag == b"L" else dict(zip(items[::2], items[1::2], strict=True))), rest


def same(one, other) -> bool:
    """Equal and of one kind (1, 1.0 and True are not), all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return one == other


@given(VALUES)
def test_an_encoding_can_be_read_back(value):
    assert same(decode(encode(value)), value)


@given(VALUES, VALUES)
def test_equal_encodings_mean_equal_values(one, other):
    assert (encode(one) == encode(other)) == same(one, other)


@given(
    arrays(np.float32, array_shapes(max_dims=3, max_side=4), elements=st.floats(-8, 8, width=32)),
    arrays(np.float32, array_shapes(max_dims=3, max_side=4), elements=st.floats(-8, 8, width=32)),
)
def test_arrays_share_an_encoding_exactly_when_they_are_equal(one, other):
    assert encode(one) == encode(np.asfortranarray(one))
    assert (encode(one) == encode(other)) == (one.shape == other.shape and bool((one == other).all()))


PARTS = st.dictionaries(st.sampled_from(["tenant", "model", "text", "epoch"]), TEXTS, min_size=1)


@given(PARTS, PARTS)
def test_robust_keys_are_equal_exactly_when_the_parts_are(one, other):
    assert (robust(Key.of(**one)) == robust(Key.of(**other))) == (one == other)


@given(st.lists(TEXTS, min_size=6, max_size=6), st.lists(TEXTS, min_size=6, max_size=6), st.integers(0, 3))
def test_robust_key_separates_what_differs_in_any_part(one, other, epoch):
    names = ("tenant", "model", "weights", "tokenizer", "prompt", "text")
    keys = [robust_key(epoch=epoch, **dict(zip(names, values, strict=True))) for values in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


@given(TEXTS, TEXTS, TEXTS)
def test_the_naive_key_can_be_made_to_collide_for_any_parts(a, b, c):
    assert naive(Key.of(p=f"{a}:{b}", q=c)) == naive(Key.of(p=a, q=f"{b}:{c}"))
