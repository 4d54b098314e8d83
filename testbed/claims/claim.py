"""What a published claim is, and what measuring it gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from testbed.core.errors import BrokenContract

Tier: TypeAlias = Literal["small", "full"]
Ruling: TypeAlias = Literal["holds", "holds only if", "refuted", "ill-defined", "not measurable here"]
Row: TypeAlias = Mapping[str, str | int | float | bool]

# Two-sided 95 % quantiles of Student's t by degrees of freedom, 1 to 30; the normal one beyond.
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Interval(NamedTuple):
    """A figure over seeds: its mean with a 95 % interval (NaN bounds when there is one seed)."""

    name: str
    mean: float
    low: float
    high: float
    n: int


class Limit(NamedTuple):
    """No correct measurement passes this: ``measured`` is at most (or at least) ``bound``, up to rounding."""

    name: str
    measured: float
    bound: float
    is_floor: bool = False

    def check(self) -> Limit:
        """Itself, or BrokenContract: a figure past a physical limit is an error of whoever measured it."""
        excess = self.bound - self.measured if self.is_floor else self.measured - self.bound
        if not excess <= 1e-9 * max(1.0, abs(self.bound)):
            side = "under" if self.is_floor else "over"
            raise BrokenContract(f"{self.name}: measured={self.measured} is {side} the limit {self.bound} (claims)")
        return self


@dataclass(frozen=True, slots=True)
class Findings:
    """What came out: the ruling, why in one or two sentences with figures, and the evidence.

    ``tables`` by name; ``plot`` is an SVG, "" for none. ``timings`` are wall-clock figures of this machine and
    ``timing_note`` what they say, kept apart as they are the only thing that differs between two runs.
    """

    ruling: Ruling
    why: str
    seeds: tuple[int, ...]
    tables: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    intervals: tuple[Interval, ...] = ()
    limits: tuple[Limit, ...] = ()
    plot: str = ""
    timings: Mapping[str, float] = field(default_factory=dict)
    timing_note: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim as published, and how it is put to the test.

    Parameters
    ----------
    statement : the claim in our words, with its figures
    source : where it was published
    definitions : what the statement leaves open, and the readings that are measured
    generator : what data and streams are drawn from, by seed
    tolerance : how near a measured figure must come to a published one to count as the same
    limit : the physical limit that is asserted
    measure : does it, in the small or the full tier
    """

    id: str
    title: str
    statement: str
    source: str
    definitions: tuple[str, ...]
    generator: str
    tolerance: str
    limit: str
    measure: Callable[[Tier], Findings]


ARTICLE = "the article on cache strategies and cache pollution that this project started from"


def interval(name: str, values: Sequence[float]) -> Interval:
    """Mean over seeds with its 95 % t interval."""
    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(name, mean, math.nan, math.nan, n)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (n - 1) / n)
    half = (_T95[n - 2] if n - 2 < len(_T95) else 1.96) * spread
    return Interval(name, mean, mean - half, mean + half, n)


def plain(value: Any) -> Any:
    """A value as JSON can hold it: NaN becomes None, floats keep nine digits, tuples become lists."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.9g}")
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
