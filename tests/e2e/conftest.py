from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.command import Outcome, play

Play = Callable[..., Outcome]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of this process, and the embeddings of all: each text is embedded once."""
    folder = tmp_path_factory.mktemp("home")
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    shared.mkdir(exist_ok=True)
    (folder / "cache").symlink_to(shared)
    return folder


@pytest.fixture(scope="session")
def played(home: Path) -> Play:
    """A small run of a scenario; one with the same arguments is played once a session."""

    @cache
    def _played(scenario: str, **knobs: str) -> Outcome:
        return play(home, scenario, **{"QUERIES": "60"} | knobs)

    return _played
