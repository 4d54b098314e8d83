"""Logical time: a run never sleeps and never reads the wall clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Anything that tells the logical time in seconds."""

    def now(self) -> float: ...


class LogicalClock:
    """Seconds since the start of a run, moved by the run loop; callbacks fire when their time is passed.

    Callbacks that are due at the same second fire in the order in which they were scheduled.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def now(self) -> float:
        return self._now

    def schedule(self, at_s: float, call: Callable[[], None]) -> None:
        """Run ``call`` when the clock reaches ``at_s`` (at once on the next move when that is past)."""
        heapq.heappush(self._due, (at_s, self._count, call))
        self._count += 1

    def move_to(self, at_s: float) -> None:
        """Move forward, firing what is due on the way, each at its own time."""
        while self._due and self._due[0][0] <= at_s:
            due_s, _, call = heapq.heappop(self._due)
            self._now = max(self._now, due_s)
            call()
        self._now = max(self._now, at_s)
