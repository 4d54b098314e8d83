"""Several caches behind one: asked in order, written all at once."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from testbed.core.ports import Cache
from testbed.core.types import Key


class TieredCache:
    """The first tier that has the key answers; ``put`` and ``delete`` reach every tier.

    A hit further down is not copied upwards: what a semantic tier found under another text must not become an exact
    entry, which would outlive that other text's deletion.

    Parameters
    ----------
    tiers : caches by name, fastest first. Kept as ``tiers``; replace an item to wrap that tier.
    """

    def __init__(self, tiers: Mapping[str, Cache]) -> None:
        self.tiers: MutableMapping[str, Cache] = dict(tiers)

    def get(self, key: Key) -> Any | None:
        for tier in self.tiers.values():
            value = tier.get(key)
            if value is not None:
                return value
        return None

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        for tier in self.tiers.values():
            tier.put(key, value, ttl_s=ttl_s)

    def delete(self, key: Key) -> None:
        for tier in self.tiers.values():
            tier.delete(key)

    def fresh(self) -> TieredCache:
        return TieredCache({name: tier.fresh() for name, tier in self.tiers.items()})
