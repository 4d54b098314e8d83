"""The simplest cache there is, for tests of what is put around one."""

from __future__ import annotations

from typing import Any

from testbed.core.types import Key


class DictCache:
    """A dict behind the interface of a cache."""

    def __init__(self) -> None:
        self.entries: dict[tuple[tuple[str, str], ...], Any] = {}

    def get(self, key: Key) -> Any | None:
        return self.entries.get(key.parts)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        self.entries[key.parts] = value

    def delete(self, key: Key) -> None:
        self.entries.pop(key.parts, None)

    def fresh(self) -> DictCache:
        return DictCache()
