from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InvalidInput
from testbed.run import compose
from testbed.run.compose import words
from testbed.run.settings import Settings
from testbed.stacks.sandbox import Sandbox


def test_settings_become_the_words_that_give_them_again() -> None:
    settings = Settings("tenant-leak", variant="post-filter", seed=7, level=0.25, store="exact", queries=60)
    assert words(settings, as_json=True) == [
        "run",
        "tenant-leak",
        "--variant",
        "post-filter",
        "--seed",
        "7",
        "--level",
        "0.25",
        "--stack",
        "reference",
        "--store",
        "exact",
        "--queries",
        "60",
        "--json",
    ]


def test_an_empty_knob_is_left_out() -> None:
    assert "--dataset" not in words(Settings("tenant-leak")) and "--variant" not in words(Settings("tenant-leak"))


def test_a_level_is_passed_on_to_the_last_digit() -> None:
    passed = words(Settings("tenant-leak", level=0.123456789))
    assert passed[passed.index("--level") + 1] == "0.123456789"


def test_results_go_where_they_were_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[Sandbox] = []

    def run_in_compose(argv: Sequence[str], box: Sandbox) -> int:
        told.append(box)
        return 4

    monkeypatch.setattr(compose, "run_in_compose", run_in_compose)
    monkeypatch.setenv("RESULTS_DIR", "/elsewhere")
    assert compose.run(Settings("tenant-leak", results_dir=tmp_path / "here")) == 4
    assert told[0].path_of("RESULTS_DIR", "results") == tmp_path / "here"


@pytest.mark.parametrize(
    ("knob", "value"),
    [("redis_url", "redis://127.0.0.1:1"), ("chroma_url", "http://127.0.0.1:1"), ("scenarios_dir", Path("mine"))],
)
def test_what_the_container_does_not_see_is_refused(knob: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{knob.upper()} is set, and BACKEND=compose has its own"):
        compose.run(dataclasses.replace(Settings("tenant-leak"), **{knob: value}))
