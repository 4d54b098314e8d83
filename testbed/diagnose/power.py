"""How much pollution it takes until each rule notices, and how often a rule cries where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.diagnose import over_seeds
from testbed.diagnose.expectations import fall
from testbed.diagnose.grid import drop_is_significant, value
from testbed.diagnose.over_seeds import Share

LEVELS = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
RULES = ("invariants", "metric", "expect")
ANY = "any"
TOLERANCE = 0.02  # a fall of the metric below this is not worth an alarm, however sure it is
DETECTED = 0.95
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Detection:
    """Share of the runs of a variant at a level in which each rule, and any of them, notices the fault."""

    scenario: str
    variant: str
    level: float
    shares: Mapping[str, Share]


def noticed(outcome: Mapping[str, Any]) -> frozenset[str]:
    """The rules that tell the faulty arm from the clean one.

    invariants : it violates one that the clean arm holds
    metric : the scenario's metric is lower by more than the tolerance, and significantly so, ask by ask
    expect : it falls by what the scenario promises of full pollution, and violates all that it promises
    """
    clean, faulty = (outcome["arms"][arm] for arm in ("clean", "faulty"))
    drop = fall(outcome["metric"], value(outcome, "clean"), value(outcome, "faulty"))
    promised = outcome["expect"]
    told = {
        "invariants": bool(set(faulty["violated"]) - set(clean["violated"])),
        "metric": drop > TOLERANCE and drop_is_significant(outcome),
        "expect": drop >= promised["drop_at_least"] - _ROUNDING
        and set(promised["violates"]) <= set(faulty["violated"]),
    }
    return frozenset(rule for rule, yes in told.items() if yes)


def detections(outcomes: Iterable[Mapping[str, Any]]) -> list[Detection]:
    """One for each variant and level, in the order in which they come first."""
    groups: dict[tuple[str, str, float], list[frozenset[str]]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome["scenario"], outcome["variant"], outcome["level"]), []).append(noticed(outcome))
    return [Detection(*key, _shares(found)) for key, found in groups.items()]


def overall(found: Sequence[Detection]) -> dict[float, dict[str, Share]]:
    """The same by level, over all variants."""
    return {
        level: {
            rule: over_seeds.share(
                sum(d.shares[rule].hits for d in found if d.level == level),
                sum(d.shares[rule].n for d in found if d.level == level),
            )
            for rule in (*RULES, ANY)
        }
        for level in dict.fromkeys(d.level for d in found)
    }


def smallest(found: Sequence[Detection], rule: str = ANY) -> dict[tuple[str, str], float | None]:
    """For each variant the lowest level from which on the rule notices nearly every run; None when it never does."""
    out: dict[tuple[str, str], float | None] = {}
    for variant in dict.fromkeys((d.scenario, d.variant) for d in found):
        mine = sorted((d for d in found if (d.scenario, d.variant) == variant), key=lambda d: -d.level)
        out[variant] = None
        for detection in mine:
            if detection.level == 0 or detection.shares[rule].share < DETECTED:
                break
            out[variant] = detection.level
    return out


def alarms(outcomes: Iterable[Mapping[str, Any]]) -> tuple[Share, list[str]]:
    """How many runs of clean stacks violate something, and a line for each."""
    n, lines = 0, []
    for outcome in outcomes:
        n += 1
        said = outcome["arms"]["clean"]["violated"]
        if said:
            where = f"{outcome['scenario']}/{outcome['variant']}, seed {outcome['seed']}"
            lines.append(f"{where}: the clean arm violates {', '.join(said)}")
    return over_seeds.share(len(lines), n), lines


def _shares(found: Sequence[frozenset[str]]) -> dict[str, Share]:
    hits = {rule: sum(rule in told for told in found) for rule in RULES} | {ANY: sum(bool(told) for told in found)}
    return {rule: over_seeds.share(n, len(found)) for rule, n in hits.items()}
