"""A run in the Compose sandbox: the same settings as words for the command line in the container."""

from __future__ import annotations

import os

from testbed.core.errors import InvalidInput
from testbed.run.settings import Settings
from testbed.stacks.containers import run_in_compose
from testbed.stacks.sandbox import Sandbox


def run(settings: Settings, *, as_json: bool = False) -> int:
    """Run the scenario in its container against the services; its output passes through, its exit code comes back.

    Raises
    ------
    InvalidInput : what the container does not see was asked for
    """
    inside = {
        "REDIS_URL": settings.redis_url,
        "CHROMA_URL": settings.chroma_url,
        "SCENARIOS_DIR": settings.scenarios_dir or os.environ.get("SCENARIOS_DIR"),
    }
    for name, value in inside.items():
        if value:
            raise InvalidInput(f"{name} is set, and BACKEND=compose has its own; unset {name}, or BACKEND")
    results = settings.results_dir.expanduser().resolve()
    return run_in_compose(words(settings, as_json=as_json), Sandbox(env={**os.environ, "RESULTS_DIR": str(results)}))


def words(settings: Settings, *, as_json: bool = False) -> list[str]:
    """What to type after ``testbed`` to get these settings."""
    options = {
        "--variant": settings.variant,
        "--seed": str(settings.seed),
        "--level": repr(settings.level),
        "--stack": settings.stack,
        "--store": settings.store,
        "--dataset": settings.dataset,
        "--blame": "" if settings.blame == "bypass" else settings.blame,
        "--queries": str(settings.queries),
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    return ["run", settings.scenario, *given, *(["--json"] if as_json else [])]
