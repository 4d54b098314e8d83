from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from testbed.caches import codec
from testbed.core.errors import BrokenContract


def test_a_plain_value_is_canonical_json_behind_expiry_and_form() -> None:
    assert codec.pack({"b": 1, "a": "é"}, 2.5) == struct.pack("<d", 2.5) + b"j" + '{"a":"é","b":1}'.encode()


def test_a_vector_is_its_shape_and_its_floats() -> None:
    entry = codec.pack(np.array([1.0, -2.0], dtype=np.float32))
    assert entry == struct.pack("<d", math.inf) + b"v" + b"\x01" + struct.pack("<q", 2) + struct.pack("<2f", 1.0, -2.0)


def test_a_vector_inside_a_dict_comes_back_as_an_array_and_a_dict_that_looks_like_one_as_a_dict() -> None:
    value = {"v": np.array([[0.5, 1.5]], dtype=np.float32), "$f32": "not an array", "$$": [1]}
    back = codec.unpack(codec.pack(value), 0.0)
    assert isinstance(back, dict)
    assert back["v"].tolist() == [[0.5, 1.5]]
    assert back["v"].dtype == np.float32
    assert back["$f32"] == "not an array"
    assert back["$$"] == [1]


def test_an_entry_is_gone_from_its_last_second_on() -> None:
    entry = codec.pack("value", 10.0)
    assert codec.unpack(entry, 9.999) == "value"
    assert codec.unpack(entry, 10.0) is None


def test_an_unpacked_array_can_be_changed_without_changing_the_entry() -> None:
    entry = codec.pack(np.zeros(3, dtype=np.float32))
    first = codec.unpack(entry, 0.0)
    assert first is not None
    first[0] = 9.0
    again = codec.unpack(entry, 0.0)
    assert again is not None
    assert again.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: "key is no str"},
        [{"deep": {2, 3}}],
        np.zeros(2, dtype=np.float64),
        {"v": np.zeros(2, dtype=np.int64)},
        b"bytes",
        np.float32(1.0),
    ],
)
def test_what_would_not_come_back_equal_is_refused(value: object) -> None:
    with pytest.raises(BrokenContract):
        codec.pack(value)
