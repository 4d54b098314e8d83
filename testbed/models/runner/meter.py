"""How many bytes a cache holds on the device, and the most it ever held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Meter:
    """Bytes of all layers of one cache, and the most there ever were at one time."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    def change(self, by: int) -> None:
        self.now += by
        self.peak = max(self.peak, self.now)

    @contextmanager
    def passing(self, n_bytes: int) -> Iterator[None]:
        """So many bytes more while the with-block lasts."""
        self.change(n_bytes)
        try:
            yield
        finally:
            self.change(-n_bytes)
