"""What every scenario promises, held to it over seeds: the drop, the layer to blame, the cures, a silent clean arm."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testbed.core.scenario import Scenario, Variant
from testbed.diagnose.outcome import OUTCOME
from testbed.diagnose.summary import Summarize
from testbed.run import scenarios, sweep
from testbed.run.plan import layers_of
from testbed.run.settings import Settings
from testbed.run.sweep import Sweep

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]  # the first case waits for all of them

HEADLINE = ("tenant-leak", "version-skew", "semantic-drift")
CLEAN_SEEDS = range(11, 21)
# The whole grid (every variant, every seed, every arm) takes hours on two cores: `make promises` runs it. By default a
# headline scenario is held to three seeds, and its other variants and the first of every other scenario to one.
EVERYTHING = os.environ.get("PROMISES") == "all"
SEEDS = range(1, 11) if EVERYTHING else range(1, 4)


def is_asked(name: str, place: int, seed: int) -> bool:
    """Whether a variant, by its place in its scenario, is held to its promise at this seed."""
    if EVERYTHING or (name in HEADLINE and place == 0):
        return True
    return seed == 1 and (name in HEADLINE or place == 0)


def promised(scenario: Scenario, variant: Variant) -> tuple[str, ...]:
    """The arms that the promise speaks of: what a fix costs on a clean stack is none of it."""
    bypassed = dict.fromkeys((*layers_of(scenario), *([variant.expect.blame] if variant.expect.blame else [])))
    without = (f"faulty-without:{layer}" for layer in bypassed)
    return ("clean", "faulty", *(f"faulty+{fix}" for fix in variant.expect.cured_by), *without)


LOADED = [scenarios.load(name) for name in scenarios.names()]
CASES = {
    f"{scenario.name}-{variant.name}-{seed}": Settings(
        scenario.name, variant=variant.name, seed=seed, arms=() if EVERYTHING else promised(scenario, variant)
    )
    for scenario in LOADED
    for place, variant in enumerate(scenario.variants)
    for seed in SEEDS
    if is_asked(scenario.name, place, seed)
}
CLEAN_CASES = {
    f"{name}-{seed}": Settings(name, seed=seed, arms=("clean",)) for name in HEADLINE for seed in CLEAN_SEEDS
}


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, home: Path) -> Mapping[Settings, sweep.Done]:
    """Every case that was asked for, two at a time, with the embeddings of the session."""
    asked = [
        item.callspec.params["cell"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path and hasattr(item, "callspec")
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_CACHE_DIR", str(home / "cache"))
        patch.delenv("TESTBED_WORKERS", raising=False)
        cells = list(dict.fromkeys(asked))
        made = Sweep(home / "promises", Summarize(), OUTCOME, sweep.n_workers(len(cells)), keeps_going=True).run(cells)
    return {done.settings: done for done in made}


def outcome(outcomes: Mapping[Settings, sweep.Done], cell: Settings) -> Mapping[str, Any]:
    done = outcomes[cell]
    if "pip install 'rag-testbed[" in done.error:
        pytest.skip(done.error)
    assert not done.error, done.error
    value: Mapping[str, Any] = done.value
    return value


@pytest.mark.parametrize("cell", CASES.values(), ids=CASES)
def test_a_scenario_is_what_it_promises_to_be(outcomes: Mapping[Settings, sweep.Done], cell: Settings) -> None:
    expect = outcome(outcomes, cell)["expect"]
    assert expect["applies"], expect["why_not"]
    assert expect["failures"] == []


@pytest.mark.parametrize("cell", CLEAN_CASES.values(), ids=CLEAN_CASES)
def test_the_clean_arm_violates_nothing(outcomes: Mapping[Settings, sweep.Done], cell: Settings) -> None:
    clean = outcome(outcomes, cell)["arms"]["clean"]
    assert clean["status"] == "ok" and clean["violated"] == {} and clean["undecided"] == []
    assert 0.80 <= clean["means"]["MRR@5"] <= 0.97


def test_every_scenario_is_a_case() -> None:
    asked = {(c.scenario, c.variant) for c in CASES.values()}
    every = {(scenario.name, v.name) for scenario in LOADED for v in scenario.variants}
    first = {(scenario.name, scenario.variants[0].name) for scenario in LOADED}
    assert asked == every if EVERYTHING else first < asked < every
