"""What a fault or fix may know of a run, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from testbed.core import seeds
from testbed.core.clock import LogicalClock
from testbed.core.types import Key, Query
from testbed.probes.trace import Recorder


class RunContext:
    """Implements ``core.ports.Context`` for one arm."""

    def __init__(self, seed: int, level: float, clock: LogicalClock, recorder: Recorder) -> None:
        self._seed = seed
        self._level = level
        self._clock = clock
        self._recorder = recorder
        self._asker: Query | None = None

    @property
    def level(self) -> float:
        return self._level

    def affects(self, name: str, token: str, *, share: float = 1.0) -> bool:
        return seeds.uniform(self._seed, "affects", name, token) < self._level * share

    def now(self) -> float:
        return self._clock.now()

    def schedule(self, at_s: float, call: Callable[[], None]) -> None:
        self._clock.schedule(at_s, call)

    def asker(self) -> Query | None:
        return self._asker

    def asking(self, query: Query | None) -> None:
        """Set by the run loop around each ask, as a front door does after it has authenticated the caller."""
        self._asker = query

    def reject(self, layer: str, key: Key, why: str) -> None:
        self._recorder.event(layer, "reject", self._recorder.key(key), "", {"why": why})
