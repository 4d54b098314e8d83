"""What a gate has to say: findings of single rules, of a cell, and the decision over all of them with its exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Literal

from testbed.diagnose.asks import Asks
from testbed.diagnose.contrast import Contrast, Name, Pair
from testbed.record.baseline import Cell

Rule = Literal["run", "comparable", "determinism", "invariants", "expect", "metric", "coverage", "power", "latency"]
Outcome = Literal["failed", "unknown", "noted"]
RULES: tuple[Rule, ...] = (
    "run",
    "comparable",
    "determinism",
    "invariants",
    "expect",
    "metric",
    "coverage",
    "power",
    "latency",
)

PASSED, REGRESSED, FAILED, COULD_NOT_TELL = 0, 1, 3, 4


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule has to say of an arm. ``failed`` is a regression, ``unknown`` could not be told.

    ``witness`` is the first case of it, in words. ``contrast`` has the numbers of a metric.
    """

    rule: Rule
    outcome: Outcome
    arm: str
    text: str
    layer: str = ""
    metric: str = ""
    witness: str = ""
    contrast: Contrast | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """One cell of a baseline and what was found when it was played again.

    ``pairs`` are then and now of every metric, ``stands`` the arm of the run that stands for each arm of the baseline.
    ``same_trace`` is True when every arm's trace is the baseline's, event for event. ``is_exact``: then and now differ
    by what was changed, not by chance. ``code`` is the exit code of an error that kept the run from being played.
    ``sees`` is the smallest drop that would have been seen.
    """

    scenario: str
    cell: Cell
    findings: tuple[Finding, ...]
    folder: Path | None = None
    digest: str = ""
    same_trace: bool = False
    is_exact: bool = False
    sees: float = nan
    pairs: Mapping[Name, Pair] = field(default_factory=dict)
    asks: Asks | None = None
    stands: Mapping[str, str] = field(default_factory=dict)
    code: int = 0

    @property
    def group(self) -> str:
        """Seeds of one variant are judged together, but not where each difference is one by itself."""
        cell = self.cell
        rest = (cell.level, cell.queries, cell.stack, cell.store, cell.dataset, *(("seed", cell.seed) * self.is_exact))
        return f"{self.scenario}/{cell.variant}/{'/'.join(map(str, rest))}"

    def outcome(self) -> Outcome | Literal["passed"]:
        found = {f.outcome for f in self.findings}
        return "failed" if "failed" in found else "unknown" if "unknown" in found else "passed"


@dataclass(frozen=True, slots=True)
class Decision:
    """All of a gate's cells, with the findings that need all of them; and the scenarios that have no baseline."""

    cells: tuple[Judged, ...]
    contrasts: Mapping[str, Sequence[Contrast]] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    others: tuple[Finding, ...] = ()

    def findings(self, outcome: Outcome) -> list[tuple[Judged | None, Finding]]:
        own: list[tuple[Judged | None, Finding]] = [(None, f) for f in self.others if f.outcome == outcome]
        return [*((c, f) for c in self.cells for f in c.findings if f.outcome == outcome), *own]

    @property
    def code(self) -> int:
        """A regression is one, whatever else failed; then what was not there; then what could not be told."""
        if self.findings("failed"):
            return REGRESSED
        broken = max((cell.code for cell in self.cells), default=0)
        return broken or (COULD_NOT_TELL if self.findings("unknown") else PASSED)
