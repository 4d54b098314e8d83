"""How much pollution it takes until the gate notices, and how often it cries where there is none.

Both are asked of the gate itself, with its own rules and limits. A fault: the clean arm is what the baseline remembers,
the faulty arm is what the stack has become since; once as the deterministic stack that it is, and once as if it did not
say so. A false alarm: a clean run is recorded as a baseline, and another
process plays it again and holds it to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.core import digest
from testbed.diagnose import gate, over_seeds, regressions
from testbed.diagnose.findings import PASSED
from testbed.diagnose.over_seeds import Share
from testbed.diagnose.remember import cell_of
from testbed.record import baseline
from testbed.record.baseline import Cell
from testbed.record.folder import RunReader
from testbed.run.sweep import Measure

LEVELS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
RULES = ("invariants", "metric")  # those that can fail where nothing but the stack's behaviour has changed
# Any of its rules; any of them on a stack that does not call itself deterministic; with EXACT=1, where another trace is
# a failure too.
GATE, BY_CHANCE, EXACT = "gate", "by chance", "exact"
TOGETHER = "gate, all seeds"  # of a baseline that has them all, one seed that is noticed is enough
COLUMNS = (*RULES, GATE, BY_CHANCE, EXACT)
DETECTED = 0.95


@dataclass(frozen=True, slots=True)
class Detection:
    """Share of the runs of a variant at a level in which each rule, and the gate as a whole, notices the fault."""

    scenario: str
    variant: str
    level: float
    shares: Mapping[str, Share]


def seen(folder: Path) -> dict[str, Any]:
    """What the gate says of a run whose faulty arm is what the clean stack of its baseline has become: a JSON value."""
    reader = RunReader(folder)
    cell = cell_of(reader)
    other = replace(cell, deterministic=False, tolerance={})
    as_if = _judged(reader, other, as_clean="faulty")["noticed"]
    return {**_judged(reader, cell, as_clean="faulty"), "noticed_by_chance": as_if}


def remembered(folder: Path) -> dict[str, Any]:
    """The baseline that a run leaves: a JSON value."""
    return asdict(cell_of(RunReader(folder)))


def held(cell: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What the gate says of a run that is held to what an earlier one has left (``remembered``): a JSON value."""
    return _judged(RunReader(folder), baseline.cell_from_json(cell))


def _judged(reader: RunReader, cell: Cell, as_clean: str = "clean") -> dict[str, Any]:
    """``noticed``: the rules that failed, in their order; ``moved``: another trace, a failure with EXACT=1.

    A stack that does not call itself deterministic may move.
    """
    named = reader.manifest
    decision = regressions.decide([gate.judge(named["scenario"], cell, reader, as_clean=as_clean)])
    (judged,) = decision.cells
    failed = [finding for _, finding in decision.findings("failed")]
    return {
        **{name: named[name] for name in ("scenario", "variant", "seed", "level")},
        "code": decision.code,
        "noticed": list(dict.fromkeys(finding.rule for finding in failed)),
        "moved": cell.deterministic and not judged.same_trace,
        "told": [f"{f.arm}: {f.text}" for f in failed],
        "unknown": [f"{f.arm}: {f.text}" for _, f in decision.findings("unknown")],
    }


SEEN = Measure("power@4", seen)
REMEMBERED = Measure("baseline@2", remembered)


def held_to(cells: Sequence[Mapping[str, Any]], scenarios: Sequence[str]) -> Measure:
    """The measure of ``held``, each run to its own of these cells, which are of the scenario at their place."""
    by_run = {(s, cell["variant"], cell["seed"]): cell for s, cell in zip(scenarios, cells, strict=True)}
    return Measure(f"held@3 to {digest.of_json([cell['digest'] for cell in cells])}", partial(_held_to, by_run))


def _held_to(cells: Mapping[tuple[str, str, int], Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    scenario, variant, seed = (RunReader(folder).manifest[name] for name in ("scenario", "variant", "seed"))
    return held(cells[scenario, variant, seed], folder)


def detections(found: Iterable[Mapping[str, Any]]) -> list[Detection]:
    """One for each variant and level, in the order in which they come first."""
    groups: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for run in found:
        groups.setdefault((run["scenario"], run["variant"], run["level"]), []).append(run)
    return [Detection(*key, _shares(runs)) for key, runs in groups.items()]


def overall(found: Sequence[Detection]) -> dict[float, dict[str, Share]]:
    """The same by level, over all variants; and of how many variants one seed at least is noticed."""
    return {
        level: {
            rule: over_seeds.share(
                sum(d.shares[rule].hits for d in found if d.level == level),
                sum(d.shares[rule].n for d in found if d.level == level),
            )
            for rule in COLUMNS
        }
        | {TOGETHER: together([d for d in found if d.level == level])}
        for level in dict.fromkeys(d.level for d in found)
    }


def together(found: Sequence[Detection]) -> Share:
    """Share of these variants and levels of which the gate notices at least one seed."""
    return over_seeds.share(sum(d.shares[GATE].hits > 0 for d in found), len(found))


def smallest(found: Sequence[Detection], rule: str = GATE) -> dict[tuple[str, str], float | None]:
    """For each variant the lowest level from which on the rule notices nearly every run; None when it never does.

    ``TOGETHER``: from which on one seed at least is noticed.
    """
    out: dict[tuple[str, str], float | None] = {}
    for variant in dict.fromkeys((d.scenario, d.variant) for d in found):
        mine = sorted((d for d in found if (d.scenario, d.variant) == variant), key=lambda d: -d.level)
        out[variant] = None
        for detection in mine:
            noticed = together([detection]) if rule == TOGETHER else detection.shares[rule]
            if detection.level == 0 or noticed.share < DETECTED:
                break
            out[variant] = detection.level
    return out


def alarms(found: Iterable[Mapping[str, Any]]) -> tuple[Share, list[str]]:
    """How many gate runs of clean stacks did not pass, and a line for each."""
    n, lines = 0, []
    for run in found:
        n += 1
        if run["code"] != PASSED or run["moved"]:
            what = "; ".join([*run["told"], *run["unknown"]]) or "another trace, and nothing worse in it"
            lines.append(f"{run['scenario']}/{run['variant']}, seed {run['seed']}: {what}")
    return over_seeds.share(len(lines), n), lines


def _shares(runs: Sequence[Mapping[str, Any]]) -> dict[str, Share]:
    hits = {rule: sum(rule in run["noticed"] for run in runs) for rule in RULES}
    hits[GATE] = sum(bool(run["noticed"]) for run in runs)
    hits[BY_CHANCE] = sum(bool(run["noticed_by_chance"]) for run in runs)
    hits[EXACT] = sum(bool(run["noticed"]) or run["moved"] for run in runs)
    return {rule: over_seeds.share(n, len(runs)) for rule, n in hits.items()}
