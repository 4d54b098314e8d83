"""What the table of pytest-benchmark has no column for: a call beside a bare one in the same run, and its P99.

Ratios are taken in one run because a machine that is slower now is slower for both, and the P99 is that of the calmest
fifth of the calls: what else runs on the machine is not part of the call. None of it is asserted: a test that fails
when the machine is busy says nothing about the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from statistics import median
from time import perf_counter
from typing import Any, Protocol

import pytest

LINES = pytest.StashKey[list[str]]()
ROUNDS = 3000


FIFTHS = 5


class Beside(Protocol):
    def __call__(
        self,
        ours: Callable[..., Any],
        bare: Callable[..., Any],
        fresh: Callable[[], tuple[Any, ...]],
        *,
        rounds: int = ROUNDS,
        requests: int = 1,
    ) -> None: ...


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LINES] = []


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash[LINES]:
        terminalreporter.write_line(line)


@pytest.fixture
def beside(benchmark: Any, request: pytest.FixtureRequest) -> Beside:
    """Time ``ours`` and ``bare`` in turns, on arguments that are made anew for each call and not counted.

    A call of many ``requests`` is told as so many a second.
    """

    def measure(
        ours: Callable[..., Any],
        bare: Callable[..., Any],
        fresh: Callable[[], tuple[Any, ...]],
        *,
        rounds: int = ROUNDS,
        requests: int = 1,
    ) -> None:
        bare_s: list[float] = []

        def turn() -> tuple[tuple[Any, ...], dict[str, Any]]:
            arguments = fresh()
            started = perf_counter()
            bare(*arguments)
            bare_s.append(perf_counter() - started)
            return fresh(), {}

        benchmark.pedantic(ours, setup=turn, rounds=rounds)
        if benchmark.stats is None:  # --benchmark-disable: called once, to see that it runs
            return
        ours_s = list(benchmark.stats.stats.data)
        times = median(ours_s) / median(bare_s)
        benchmark.extra_info.update(p99_us=calm_p99(ours_s) * 1e6, times_bare=times)
        pair = f"{told(ours_s, requests)}; beside it {told(bare_s, requests)}"
        least = min(ours_s) / min(bare_s)
        benchmark.extra_info.update(times_bare_fastest=least)
        line = f"{request.node.name}: {pair}; takes {times:.2f} times (the fastest of each: {least:.3f})"
        request.config.stash[LINES].append(line)

    return measure


def told(taken_s: Sequence[float], requests: int) -> str:
    if requests > 1:
        return f"{requests / median(taken_s):,.0f} requests a second"
    return f"P50 {median(taken_s) * 1e6:.2f} us, calm P99 {calm_p99(taken_s) * 1e6:.2f} us"


def calm_p99(taken_s: Sequence[float]) -> float:
    """The lowest P99 of five stretches of calls, by the nearest-rank method."""
    size = max(1, len(taken_s) // FIFTHS)
    stretches = [sorted(taken_s[i : i + size]) for i in range(0, len(taken_s) - size + 1, size)]
    return min(found[ceil(0.99 * size) - 1] for found in stretches)
