"""Runs over seeds and levels: what stays true of a variant when the draw changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import Any

from testbed.diagnose import over_seeds
from testbed.diagnose.blame import SMALLEST_DROP
from testbed.diagnose.expectations import BYPASSED, fall, recovered
from testbed.diagnose.over_seeds import Mean, Share
from testbed.metrics.scores import is_lower_better


@dataclass(frozen=True, slots=True)
class Row:
    """One variant at one level, over its seeds.

    ``drop`` is how much worse the faulty arm's ``metric`` is than the clean arm's. ``violates`` is the share of seeds
    at which the faulty arm violates an invariant, by name, ``clean_violates`` the same of the clean arm. ``blame`` is
    the share of the drop that is gone without a layer, by layer, most guilty first, over the seeds at which the drop is
    clearly there: an interval over seeds, where a run has one over its own questions. ``failures``
    is what is not as the scenario promises, by seed; ``held`` says at how many seeds it was held to that.
    """

    scenario: str
    variant: str
    level: float
    metric: str
    seeds: tuple[int, ...]
    clean: Mean
    faulty: Mean
    drop: Mean
    blame: Mapping[str, Mean]
    violates: Mapping[str, Share]
    clean_violates: Mapping[str, Share]
    held: int
    failures: Mapping[int, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "failures": {str(seed): list(said) for seed, said in self.failures.items()}}


def rows(outcomes: Iterable[Mapping[str, Any]]) -> list[Row]:
    """One row a variant and level, in the order in which they come first."""
    groups: dict[tuple[str, str, float], list[Mapping[str, Any]]] = {}
    for found in outcomes:
        groups.setdefault((found["scenario"], found["variant"], found["level"]), []).append(found)
    return [_row(*key, group) for key, group in groups.items()]


def _row(scenario: str, variant: str, level: float, group: Sequence[Mapping[str, Any]]) -> Row:
    metric = group[0]["metric"]
    pairs = [(value(o, "clean"), value(o, "faulty")) for o in group]
    return Row(
        scenario,
        variant,
        level,
        metric,
        seeds=tuple(o["seed"] for o in group),
        clean=over_seeds.mean([c for c, _ in pairs if c == c]),
        faulty=over_seeds.mean([f for _, f in pairs if f == f]),
        drop=over_seeds.mean([fall(metric, c, f) for c, f in pairs if c == c and f == f]),
        blame=_blame(group),
        violates=violated(group, "faulty"),
        clean_violates=violated(group, "clean"),
        held=sum(o["expect"]["applies"] for o in group),
        failures={o["seed"]: tuple(o["expect"]["failures"]) for o in group if o["expect"]["failures"]},
    )


def _blame(group: Sequence[Mapping[str, Any]]) -> dict[str, Mean]:
    shares: dict[str, list[float]] = {}
    for found in filter(drop_is_significant, group):
        clean, faulty = value(found, "clean"), value(found, "faulty")
        if fall(found["metric"], clean, faulty) < SMALLEST_DROP:
            continue
        for arm in found["arms"]:
            share = recovered(found["metric"], clean, faulty, value(found, arm))
            if arm.startswith(BYPASSED) and share is not None:
                shares.setdefault(arm.removeprefix(BYPASSED), []).append(share)
    means = {layer: over_seeds.mean(values) for layer, values in shares.items()}
    return dict(sorted(means.items(), key=lambda item: -item[1].mean))


def value(outcome: Mapping[str, Any], arm: str) -> float:
    """The arm's mean of the run's metric; NaN where it did not run or is unscored."""
    found = outcome["arms"].get(arm, {}).get("value")
    return nan if found is None else float(found)


def drop_is_significant(outcome: Mapping[str, Any], arm: str = "faulty") -> bool:
    """Whether the interval of the arm's difference to clean lies on the worse side of 0."""
    found = outcome["deltas"].get(arm)
    if found is None or found["low"] is None:
        return False
    return bool(found["low"] > 0 if is_lower_better(outcome["metric"]) else found["high"] < 0)


def violated(group: Sequence[Mapping[str, Any]], arm: str) -> dict[str, Share]:
    """Share of the runs in which the arm violates an invariant, by name; those that it never does are left out."""
    ran = [o["arms"][arm]["violated"] for o in group if o["arms"].get(arm, {}).get("status") == "ok"]
    names = dict.fromkeys(name for found in ran for name in found)
    return {name: over_seeds.share(sum(name in found for found in ran), len(ran)) for name in sorted(names)}
