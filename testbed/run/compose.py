"""A run in the Compose sandbox: the same settings as words for the command line in the container."""

from __future__ import annotations

from testbed.run.settings import Settings
from testbed.stacks.containers import run_in_compose


def run(settings: Settings, *, as_json: bool = False) -> int:
    """Run the scenario in its container against the services; its output passes through, its exit code comes back."""
    return run_in_compose(words(settings, as_json=as_json))


def words(settings: Settings, *, as_json: bool = False) -> list[str]:
    """What to type after ``testbed`` to get these settings."""
    options = {
        "--variant": settings.variant,
        "--seed": str(settings.seed),
        "--level": f"{settings.level:g}",
        "--stack": settings.stack,
        "--store": settings.store,
        "--dataset": settings.dataset,
        "--blame": "" if settings.blame == "bypass" else settings.blame,
        "--queries": str(settings.queries),
    }
    given = [word for name, value in options.items() if value for word in (name, value)]
    return ["run", settings.scenario, *given, *(["--json"] if as_json else [])]
