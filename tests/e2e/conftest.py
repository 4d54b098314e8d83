from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.command import Outcome, play

Play = Callable[..., Outcome]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results and embeddings of this session: each text is embedded once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def played(home: Path) -> Play:
    """A small run of a scenario; one with the same arguments is played once a session."""

    @cache
    def _played(scenario: str, **knobs: str) -> Outcome:
        return play(home, scenario, **{"QUERIES": "60"} | knobs)

    return _played
