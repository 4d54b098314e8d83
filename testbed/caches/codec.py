"""Cached values as bytes, and back: what every cache of this package keeps instead of live objects.

Bytes are what makes a cached value isolated (nobody can change it from outside) and the same in process and in Redis.
Layout: 8 bytes logical expiry (little-endian double, infinity = never), 1 byte form, payload.

- form ``j``: canonical JSON
- form ``v``: one float32 array: number of axes, axes (int64 each), the floats
- form ``m``: JSON with float32 arrays inside, each ``{"$f32": base64 of form v}``; a key that begins with ``$`` gets
  one more ``$``, so that no dict of a user reads as an array
"""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.core.errors import BrokenContract
from testbed.core.types import Key

_EXPIRY = struct.Struct("<d")
_HEAD = _EXPIRY.size + 1
_ARRAY = "$f32"
_to_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
_from_json = json.JSONDecoder().decode


def pack(value: Any, expires_at_s: float = math.inf) -> bytes:
    """The entry as bytes.

    Parameters
    ----------
    value : None, bool, int, float, str, float32 array, or lists and str-keyed dicts of these
    expires_at_s : logical second from which on the entry is no longer served

    Raises
    ------
    BrokenContract : the value is of another type (it would not come back equal).
    """
    head = _EXPIRY.pack(expires_at_s)
    if isinstance(value, np.ndarray):
        return head + b"v" + _array_bytes(value)
    if _is_plain(value):
        return head + b"j" + _to_json(value).encode("utf-8", "surrogatepass")
    return head + b"m" + _to_json(_marked(value)).encode("utf-8", "surrogatepass")


def unpack(entry: bytes, now_s: float) -> Any | None:
    """The value, new at every call; None when it has expired at ``now_s``."""
    if _EXPIRY.unpack_from(entry)[0] <= now_s:
        return None
    form, payload = entry[_HEAD - 1 : _HEAD], entry[_HEAD:]
    if form == b"v":
        return _array(payload)
    value = _from_json(payload.decode("utf-8", "surrogatepass"))
    return _unmarked(value) if form == b"m" else value


def key_bytes(key: Key) -> int:
    """Bytes of the names and values of a key's parts."""
    return sum(len(part.encode("utf-8", "surrogatepass")) for pair in key.parts for part in pair)


def _is_plain(value: Any) -> bool:
    """True when JSON alone brings the value back equal; BrokenContract when nothing does."""
    kind = type(value)
    if value is None or kind in (str, int, float, bool):
        return True
    if kind is list:
        return all([_is_plain(v) for v in value])  # a list, not a generator: every item must be checked
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise BrokenContract(f"a cached dict has the key {key!r}; keys must be str (caches/codec.py)")
        return all([_is_plain(v) for v in value.values()])
    if kind is np.ndarray and value.dtype == np.float32:
        return False
    what = f"array of {value.dtype}" if kind is np.ndarray else kind.__name__
    raise BrokenContract(
        f"a cache cannot hold a value of type {what}; expected None, bool, int, float, str, a float32 array, "
        "or lists and str-keyed dicts of these (caches/codec.py)"
    )


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {("$" + k if k.startswith("$") else k): _marked(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_marked(v) for v in value]
    if isinstance(value, np.ndarray):
        return {_ARRAY: base64.b64encode(_array_bytes(value)).decode("ascii")}
    return value


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        if _ARRAY in value:
            return _array(base64.b64decode(value[_ARRAY]))
        return {(k[1:] if k.startswith("$") else k): _unmarked(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_unmarked(v) for v in value]
    return value


def _array_bytes(array: NDArray[Any]) -> bytes:
    if array.dtype != np.float32:
        raise BrokenContract(f"a cache cannot hold an array of {array.dtype}; expected float32 (caches/codec.py)")
    shape = bytes([array.ndim]) + struct.pack(f"<{array.ndim}q", *array.shape)
    return shape + array.astype("<f4", copy=False).tobytes()


def _array(payload: bytes) -> NDArray[np.float32]:
    ndim = payload[0]
    shape = struct.unpack_from(f"<{ndim}q", payload, 1)
    return np.frombuffer(payload, dtype="<f4", offset=1 + 8 * ndim).reshape(shape).astype(np.float32)
