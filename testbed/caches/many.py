"""Several keys in one round trip, where a cache can; one by one where it (or a wrapper around it) cannot.

``get_many(keys)`` and ``put_many(items)`` are optional methods of a cache, with the meaning of the loops below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from testbed.core.ports import Cache
from testbed.core.types import Key


def get_many(cache: Cache, keys: Sequence[Key]) -> list[Any | None]:
    """The value or None for each key, in order."""
    bulk = getattr(cache, "get_many", None)
    if bulk is None:
        return [cache.get(key) for key in keys]
    found: list[Any | None] = bulk(keys)
    return found


def put_many(cache: Cache, items: Sequence[tuple[Key, Any]]) -> None:
    """Put every (key, value), in order."""
    bulk = getattr(cache, "put_many", None)
    if bulk is not None:
        bulk(items)
        return
    for key, value in items:
        cache.put(key, value)
