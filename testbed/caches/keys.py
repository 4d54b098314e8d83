"""Ways to build the key of a cache entry: as it is often done, as it was published, and so that it holds.

| builder | over | what goes wrong |
| --- | --- | --- |
| ``naive`` | the values, joined | two sets of parts can give one key |
| ``published_before`` | an embedding's memory | the same values in another dtype or layout give another key |
| ``published_after`` | shape and first 16 values | dtype still counts, and rows that begin alike share a key |
| ``robust_key`` | everything the value depends on | refuses what it cannot name exactly |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from testbed.core import digest
from testbed.core.errors import InvalidInput
from testbed.core.types import Key

Array: TypeAlias = NDArray[Any]
FirstValues: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]

KEY_BYTES = 32  # 256 bits; no two of 2**64 keys meet but with probability 2**-129


def blake3_bytes(data: bytes, n_bytes: int = KEY_BYTES) -> bytes:
    """The first ``n_bytes`` of the BLAKE3 digest."""
    return blake3(data).digest(length=n_bytes)


def naive(key: Key) -> str:
    """The values in the order of their names, joined by ``:``, as in ``user:{id}:{flag}``.

    A value that holds the separator moves the border between two parts, and the names are not in the key at all.
    """
    return ":".join(value for _, value in key.parts)


def published_before(embedding: Array) -> str:
    """``_get_cache_key`` before its fix: a digest of the embedding's bytes as they lie in memory.

    The unfixed code was not published with the fix; this is what the fix says it repairs (keys that change with dtype
    and layout). Shape and dtype are not in the key.
    """
    return digest.of_bytes(embedding.tobytes(order="A"))


def published_after(embedding: Array) -> FirstValues:
    """``_get_cache_key`` with its three-line fix: to float32 and contiguous; the shape and the first 16 values."""
    fixed = np.ascontiguousarray(embedding, dtype=np.float32)
    return fixed.shape, tuple(fixed.ravel()[:16].tolist())


def robust_key(
    *,
    tenant: str,
    model: str,
    weights: str,
    tokenizer: str,
    prompt: str,
    epoch: int,
    text: str,
    **more: object,
) -> str:
    """Key of whatever is made from a text by a model under a prompt: 64 hex digits.

    Each argument is a part that the value depends on, so none has a default. ``weights`` is a digest of the weights,
    not a name; ``epoch`` the state of the tenant's corpus; ``more`` what else the value depends on (role, k, an
    embedding). Equal keys mean equal parts, value by value and type by type.

    Raises
    ------
    InvalidInput : a part has no exact form (see ``encode``).
    """
    parts: dict[str, object] = {
        "tenant": tenant,
        "model": model,
        "weights": weights,
        "tokenizer": tokenizer,
        "prompt": prompt,
        "epoch": epoch,
        "text": text,
    }
    return blake3_bytes(encode(parts | more)).hex()


def robust(key: Key) -> str:
    """The parts of a key, named and length-prefixed: 64 hex digits. Which parts there are is the caller's business."""
    return blake3_bytes(encode(dict(key.parts))).hex()


def encode(value: object) -> bytes:
    """A value as bytes, one form each: equal bytes exactly when the values are equal and of one kind.

    Every value is a tag, a length of 8 bytes, and its content. Kinds: None, bool, int, float, str, bytes, sequence
    (list or tuple), mapping with str keys (in any order), array. A float and an int are different kinds; -0.0 is 0.0.
    An array is its shape and values whatever its memory layout and, as long as the values are the same, its dtype:
    integers as int64, floats as float32.

    Raises
    ------
    InvalidInput : NaN or infinity, which no comparison can find again; float16 and other narrow floats, which the same
        text reaches by rounding that differs between machines; float64 that float32 cannot hold; any other type.
    """
    if value is None:
        return _framed(b"N", b"")
    if isinstance(value, bool):
        return _framed(b"B", b"\x01" if value else b"\x00")
    if isinstance(value, int):
        return _framed(b"I", value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))
    if isinstance(value, float):
        return _framed(b"F", struct.pack(">d", _finite(value) + 0.0))
    if isinstance(value, str):
        return _framed(b"S", value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return _framed(b"Y", value)
    if isinstance(value, list | tuple):
        return _framed(b"L", b"".join(encode(item) for item in value))
    if isinstance(value, Mapping):
        return _framed(b"M", b"".join(encode(_name(name)) + encode(value[name]) for name in sorted(value)))
    if isinstance(value, np.ndarray):
        return _framed(b"A", _array(value))
    raise InvalidInput(f"a key part of type {type(value).__name__} has no exact form (caches.keys.encode)")


def _framed(tag: bytes, content: bytes) -> bytes:
    return tag + len(content).to_bytes(8, "big") + content


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidInput(f"value={value} in a cache key: NaN and infinity are refused (caches.keys.encode)")
    return value


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInput(f"name={name!r} of a key part must be a string (caches.keys.encode)")
    return name


def _array(array: Array) -> bytes:
    exact = _exact(array)
    shape = encode([int(n) for n in exact.shape])
    return exact.dtype.kind.encode() + shape + exact.tobytes(order="C")


def _exact(array: Array) -> Array:
    """The array as little-endian int64 or float32, if that changes no value."""
    if array.dtype.kind in "iu":
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise InvalidInput("an array in a cache key holds integers above int64 (caches.keys.encode)")
        return array.astype("<i8")
    if array.dtype.kind != "f" or array.dtype.itemsize < 4:
        raise InvalidInput(f"dtype={array.dtype} in a cache key: give float32 or integers (caches.keys.encode)")
    if not np.isfinite(array).all():
        raise InvalidInput("an array in a cache key holds NaN or infinity (caches.keys.encode)")
    with np.errstate(over="ignore"):
        narrow = array.astype("<f4")
    if not np.array_equal(narrow, array):
        raise InvalidInput(f"dtype={array.dtype} holds values that float32 rounds (caches.keys.encode)")
    return narrow + np.float32(0)  # -0.0 becomes 0.0
