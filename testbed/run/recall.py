"""From the manifest of a recorded run back to its settings, and whether what it ran on is still the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.record import manifest
from testbed.run import scenarios
from testbed.run.plan import Plan
from testbed.run.settings import Settings


def settings_of(described: Mapping[str, Any], *, redis_url: str = "", scenarios_dir: Path | None = None) -> Settings:
    """The settings of the run with this manifest; which server holds the caches is for the caller to say.

    Raises
    ------
    InvalidInput : an older manifest that does not say which data was asked for.
    """
    told = described["settings"]
    dataset = told.get("dataset")
    if dataset is None:
        own = scenarios.load(described["scenario"], scenarios_dir).dataset
        if described["data"]["name"] != own:
            raise InvalidInput(
                f"the run's manifest names data set {described['data']['name']!r}, not where it is; run it again"
            )
        dataset = ""
    return Settings(
        scenario=described["scenario"],
        variant=described["variant"],
        seed=described["seed"],
        level=described["level"],
        stack=told["stack"],
        store=told["store"],
        dataset=dataset,
        queries=told["queries"],
        arms=tuple(told.get("arms", ())),
        blame=told.get("blame", "bypass"),
        redis_url=redis_url,
        scenarios_dir=scenarios_dir,
    )


def differences(described: Mapping[str, Any], plan: Plan) -> list[str]:
    """What is not as it was when the run was recorded, in words; [] when all of it is."""
    out = []
    if plan.scenario_digest != described["scenario_digest"]:
        out.append(f"scenarios/{scenarios.source(plan.scenario.name, plan.settings.scenarios_dir).name} has changed")
    if plan.corpus.digest != described["data"]["digest"]:
        out.append(f"data set {plan.corpus.name} has changed")
    then, now = described.get("git") or {}, manifest.git_state(Path(__file__).parent) or {}
    if then.get("commit") != now.get("commit"):
        out.append(f"the code was at {_commit(then)} and is at {_commit(now)}")
    elif then.get("dirty") or now.get("dirty"):
        out.append(f"the code had or has changes that are not in commit {_commit(now)}")
    packages = manifest.packages()
    moved = [n for n, v in sorted(described.get("packages", {}).items()) if packages.get(n) != v]
    if moved:
        out.append(", ".join(f"{n} was {described['packages'][n]} and is {packages.get(n, 'missing')}" for n in moved))
    return out


def _commit(state: Mapping[str, Any]) -> str:
    return str(state.get("commit", "no commit"))[:10]
