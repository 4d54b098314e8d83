"""Scenarios by name: one Python file each, found by its file name."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from testbed.core.errors import InvalidInput, unknown
from testbed.core.ports import Change
from testbed.core.scenario import Scenario


def folder(given: Path | None = None) -> Path:
    """The scenarios folder: the one given, ``$SCENARIOS_DIR``, the one here, or the one beside the package."""
    asked = given or (Path(env) if (env := os.environ.get("SCENARIOS_DIR")) else None)
    places = [asked] if asked else [Path("scenarios"), Path(__file__).resolve().parents[2] / "scenarios"]
    for place in places:
        if place is not None and place.is_dir():
            return place
    raise InvalidInput(f"no scenarios folder at {places[0]}; run from the project's root or set SCENARIOS_DIR")


def names(given: Path | None = None) -> list[str]:
    """Names of all scenarios, sorted."""
    return sorted(p.stem.replace("_", "-") for p in folder(given).glob("*.py") if not p.stem.startswith("_"))


def source(name: str, given: Path | None = None) -> Path:
    """The file of a scenario."""
    if name not in names(given):
        raise unknown("scenario", name, names(given), "make list")
    return folder(given) / f"{name.replace('-', '_')}.py"


def load(name: str, given: Path | None = None) -> Scenario:
    """The frozen ``SCENARIO`` of ``scenarios/<name>.py``."""
    path = source(name, given)
    spec = importlib.util.spec_from_file_location(f"scenarios_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InvalidInput(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    scenario = getattr(module, "SCENARIO", None)
    if not isinstance(scenario, Scenario):
        raise InvalidInput(f"{path} must define SCENARIO, a testbed.core.scenario.Scenario")
    if scenario.name != name:
        raise InvalidInput(f"{path} defines scenario {scenario.name!r}; expected {name!r}, as its file is named")
    return scenario


def slow(given: Path | None = None) -> tuple[str, ...]:
    """Names of the scenarios that say of themselves that a run takes minutes, sorted."""
    return tuple(name for name in names(given) if load(name, given).slow)


def fixes(given: Path | None = None) -> dict[str, Change]:
    """Every fix that a scenario uses, by name: a fix does not know which fault it faces, so any can be tried on any."""
    found: dict[str, Change] = {}
    for name in names(given):
        for variant in load(name, given).variants:
            for fix in variant.fixes:
                found.setdefault(fix.name, fix)
    return dict(sorted(found.items()))
