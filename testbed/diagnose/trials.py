"""The runs over which attribution methods are judged: what is run, and what each method says of it.

The truth is the injector's own record: which layers the fault was in. What counts as a clean run: the faulty arm at
level 0, which is the clean arm byte for byte, and a healthy stack that lost its answer cache, compared with the
healthy stack that has it: something changed, hit rates most of all, but no layer is at fault.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from testbed.core import coalitions
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.diagnose import blame
from testbed.diagnose.attribution import (
    Case,
    Suspect,
    suspects_of_blame,
    suspects_of_matches,
    suspects_of_repair,
    suspects_of_shares,
)
from testbed.diagnose.blame import SMALLEST_DROP
from testbed.diagnose.heatmap import Match
from testbed.diagnose.judge import judge_arm, judge_run
from testbed.record.folder import RunReader
from testbed.run import scenarios
from testbed.run.plan import layers_of
from testbed.run.settings import Settings
from testbed.run.sweep import Measure

BYPASS, PUBLISHED, SHAPLEY, REPAIR = "bypass and replay", "joint attribution", "shapley", "smallest repair"
CONTROL = "clean-without:"  # and the outermost layer, which the healthy control has lost
LEAST_SHARE = 0.05  # of the drop: of two layers at fault, the one that the other hides may have little


class Tier(NamedTuple):
    """``first``: so many variants of each scenario, 0 for all of them."""

    name: str
    first: int
    seeds: tuple[int, ...]
    levels: tuple[float, ...]
    queries: int
    slow: bool


TIERS = {
    "small": Tier("small", 2, (1,), (1.0,), 120, False),
    "full": Tier("full", 0, (1, 2, 3, 4), (1.0, 0.3), 400, True),
}


def tier(name: str, seeds: tuple[int, ...] = (), levels: tuple[float, ...] = (), queries: int = 0) -> Tier:
    """A tier, with what is given in the place of its own."""
    own = TIERS[name]
    return own._replace(seeds=seeds or own.seeds, levels=levels or own.levels, queries=queries or own.queries)


def cells(tier: Tier, only: Sequence[str] = (), scenarios_dir: Path | None = None) -> list[Settings]:
    """Every faulty run of the tier, and the clean ones: by scenario and seed, one at level 0 and one control.

    ``only``: of these scenarios, slow or with a stack of their own or not; of all others when empty.
    """
    out = []
    for name in only or scenarios.names(scenarios_dir):
        scenario = scenarios.load(name, scenarios_dir)
        if scenario.layers and not only:  # a stack of its own: the methods are compared over the same layers
            continue
        told = [v for v in scenario.variants if v.expect.blame]  # "": what no bypass brings back has no layer to name
        if not told or (scenario.slow and not tier.slow and not only):
            continue
        for seed in tier.seeds:
            knobs: dict[str, Any] = {"seed": seed, "queries": tier.queries, "scenarios_dir": scenarios_dir}
            for variant in told[: tier.first or None]:
                for level in tier.levels:
                    out.append(_faulty(scenario, variant, level, **knobs))
            out.append(_faulty(scenario, told[0], 0.0, **knobs))
            out.append(Settings(name, told[0].name, arms=_control_arms(layers_of(scenario)), **knobs))
    return out


def _faulty(scenario: Scenario, variant: Variant, level: float, **knobs: Any) -> Settings:
    name, layers = scenario.name, layers_of(scenario)
    single = [f"faulty-without:{layer}" for layer in layers]
    if "+" not in variant.expect.blame:
        return Settings(name, variant.name, level=level, arms=("clean", "faulty", *single), **knobs)
    sets = [[layer for layer in layers if layer in s] for s in coalitions.subsets(layers) if s]
    every = dict.fromkeys([f"faulty-without:{variant.expect.blame}", *(f"faulty-without:{'+'.join(s)}" for s in sets)])
    return Settings(name, variant.name, level=level, arms=("clean", "faulty", *every), blame="shapley", **knobs)


def _control_arms(layers: Sequence[str]) -> tuple[str, ...]:
    lost, *others = layers
    return ("clean", f"{CONTROL}{lost}", *(f"{CONTROL}{lost}+{layer}" for layer in others))


def said(folder: Path) -> dict[str, Any]:
    """What each method says of one recorded run: a JSON value."""
    reader = RunReader(folder)
    summary: dict[str, Any] = reader.summary
    if any(arm.startswith(CONTROL) for arm in reader.arms):
        summary = {**summary, **_control(reader), "level": 0.0, "control": True}
    is_exact = summary.get("deterministic") is True
    blames = [blame.from_json(b) for b in summary["blame"] if "+" not in b["layer"]]
    methods = {
        BYPASS: suspects_of_blame(blames, exact=is_exact),
        PUBLISHED: suspects_of_matches(Match(**m) for m in summary["published_attribution"]),
    }
    if summary.get("shapley"):
        shares = [(s["layer"], s["share"]) for s in summary["shapley"]["shares"] if s["share"] > 0.0]
        told = not summary["shapley"]["why"] and summary["shapley"]["drop"] >= SMALLEST_DROP
        methods[SHAPLEY] = suspects_of_shares(shares, least=LEAST_SHARE) if told else ()
        methods[REPAIR] = suspects_of_repair(summary["shapley"].get("repair"), exact=is_exact)
    arms = {name: summary["arms"].get(name, {}).get("means", {}) for name in ("clean", "faulty")}
    means = {name: found.get(summary["metric"]) for name, found in arms.items()}
    return {
        "scenario": summary["scenario"],
        "variant": summary["variant"],
        "seed": summary["seed"],
        "level": summary["level"],
        "queries": summary["queries"],
        "metric": summary["metric"],
        "means": means,
        "injected": summary["expect"]["blame"].split("+") if summary["level"] > 0 else [],
        "control": bool(summary.get("control")),
        "said": {method: [list(suspect) for suspect in suspects] for method, suspects in methods.items()},
        "digest": summary["digest"],
    }


MEASURE = Measure("attribution@3", said)


def cases(values: Iterable[dict[str, Any]]) -> list[Case]:
    """One case a run and method."""
    return [
        Case(method, tuple(value["injected"]), tuple(Suspect(*s) for s in suspects))
        for value in values
        for method, suspects in value["said"].items()
    ]


def _control(reader: RunReader) -> dict[str, Any]:
    """The clean stack against the clean stack without its outermost cache, judged as if that were the faulty one."""
    bypassed = {arm: arm.removeprefix(CONTROL).split("+") for arm in reader.arms if arm.startswith(CONTROL)}
    names = {"clean": "clean"}
    names |= {f"faulty-without:{n[1]}" if len(n) > 1 else "faulty": arm for arm, n in bypassed.items()}
    arms = {name: judge_arm(reader.evidence(arm), reader.timings(arm)) for name, arm in names.items()}
    told = reader.summary["expect"]
    expect = Expect(told["metric"], told["drop_at_least"], told["blame"], (), ())
    layers = [n[1] for n in bypassed.values() if len(n) > 1]
    run = judge_run(arms, expect, layers, seed=int(reader.manifest["seed"])).to_json()
    return {name: run[name] for name in ("metric", "blame", "published_attribution", "arms")}


def as_json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n"
