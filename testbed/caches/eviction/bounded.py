"""Any cache with a limit on its entries, kept by an eviction policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from testbed.caches.eviction.policy import OnEvict, Policy
from testbed.core.ports import Cache
from testbed.core.types import Key


class Bounded:
    """A cache that holds at most as many entries as its policy does; what the policy gives up is deleted.

    ``make`` builds the policy around the callback that deletes, as in
    ``Bounded(cache, lambda out: Lru(1000, on_evict=out))``. An answer of None from the cache inside (it lost the
    entry, or it expired) is forgotten by the policy too.
    """

    def __init__(self, inner: Cache, make: Callable[[OnEvict], Policy]) -> None:
        self.inner = inner
        self._make = make
        self._keys: dict[Hashable, Key] = {}
        self.policy = make(self.drop)

    def get(self, key: Key) -> Any | None:
        name = key.digest()
        if name not in self.policy:
            return None
        value = self.inner.get(key)
        if value is None:
            self.policy.remove(name)
            self._keys.pop(name, None)
        else:
            self.policy.access(name)
        return value

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        name = key.digest()
        self._keys[name] = key
        self.policy.access(name)
        if name in self.policy:
            self.inner.put(key, value, ttl_s=ttl_s)
        else:  # not admitted: an older value must not stay behind
            self.drop(name)

    def delete(self, key: Key) -> None:
        name = key.digest()
        self.policy.remove(name)
        self._keys.pop(name, None)
        self.inner.delete(key)

    def fresh(self) -> Bounded:
        return Bounded(self.inner.fresh(), self._make)

    def drop(self, name: Hashable) -> None:
        key = self._keys.pop(name, None)
        if key is not None:
            self.inner.delete(key)
