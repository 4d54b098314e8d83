"""A cache seen through another key: what most cache bugs, and most of their repairs, come down to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.core.ports import Cache
from testbed.core.types import Key


class Rekeyed:
    """Every call goes to the inner cache under ``rekey(key)``."""

    def __init__(self, inner: Cache, rekey: Callable[[Key], Key]) -> None:
        self._inner = inner
        self._rekey = rekey

    def get(self, key: Key) -> Any | None:
        return self._inner.get(self._rekey(key))

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self._inner.put(self._rekey(key), value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        self._inner.delete(self._rekey(key))

    def fresh(self) -> Rekeyed:
        return Rekeyed(self._inner.fresh(), self._rekey)
