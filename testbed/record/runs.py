"""Which runs there are, whole and half, and how to name one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from testbed.core.errors import InvalidInput
from testbed.record.folder import PARTIAL, WHOLE


class RunRow(NamedTuple):
    """One results folder at a glance. ``status`` is ``finished``, or ``half`` and how it ended."""

    scenario: str
    name: str
    status: str
    folder: Path


def runs(results: Path) -> list[RunRow]:
    """Every results folder, by scenario, then oldest first; half ones too."""
    found = [_row(folder) for folder in _folders(results)]
    return sorted(found, key=lambda row: (row.scenario, row.name.removeprefix(PARTIAL), row.name))


def find(results: Path, name: str) -> Path:
    """The folder that ``name`` stands for.

    A path; a scenario (its newest whole run); ``<scenario>/<run>``; or a part of a run's name that only one has, such
    as the digest's first digits.
    """
    if not name:
        raise InvalidInput("no run named; give a folder, a scenario or a digest (`testbed list --runs` shows them)")
    for path in (Path(name), results / name):
        if (path / "manifest.json").is_file():
            return path
    whole = [row for row in runs(results) if row.status == WHOLE]
    of_scenario = [row for row in whole if row.scenario == name]
    if of_scenario:
        return of_scenario[-1].folder
    near = [row for row in whole if name in row.name]
    if len(near) == 1:
        return near[0].folder
    what = f"names {len(near)} runs ({', '.join(row.name for row in near[:3])}, ...)" if near else "names no whole run"
    raise InvalidInput(f"run={name!r} {what} in {results}; `testbed list --runs` shows what is there")


def _folders(results: Path) -> list[Path]:
    scenarios = [path for path in results.iterdir() if path.is_dir()] if results.is_dir() else []
    inside = [run for scenario in scenarios for run in scenario.iterdir() if run.is_dir() and not run.is_symlink()]
    return [run for run in inside if run.name.startswith(PARTIAL) or (run / "manifest.json").is_file()]


def _row(folder: Path) -> RunRow:
    try:
        status = str(json.loads((folder / "manifest.json").read_text())["status"])
    except (OSError, ValueError, KeyError, TypeError):
        status = "no manifest"
    if folder.name.startswith(PARTIAL) or status != WHOLE:
        status = f"half ({status})"
    return RunRow(folder.parent.name, folder.name, status, folder)
