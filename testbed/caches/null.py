"""A cache that keeps nothing: what a bypassed layer is replaced by."""

from __future__ import annotations

from typing import Any

from testbed.core.types import Key


class NullCache:
    """Every ``get`` misses. A dict that loses everything is still a dict with losses."""

    def get(self, key: Key) -> Any | None:
        return None

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        return None

    def delete(self, key: Key) -> None:
        return None

    def fresh(self) -> NullCache:
        return NullCache()
