"""The same seed gives the same run, whatever else differs; another seed another; no pollution no difference."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.e2e.command import call
from tests.e2e.conftest import Play

pytestmark = pytest.mark.e2e

SCENARIOS = ("tenant-leak", "version-skew", "semantic-drift")
OTHER_PARTS = [
    pytest.param({"STACK": "llama-index"}, "llama_index", id="llama-index"),
    pytest.param({"STORE": "chroma"}, "chromadb", id="chroma"),
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_digest_repeats_between_runs_and_hash_seeds(played: Play, scenario: str) -> None:
    first = played(scenario)
    for hash_seed in ("1", "2"):
        again = played(scenario, PYTHONHASHSEED=hash_seed)
        assert again.manifest["arm_digests"] == first.manifest["arm_digests"]
        assert again.digest == first.digest


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_another_seed_is_another_run(played: Play, scenario: str) -> None:
    first, other = played(scenario), played(scenario, SEED="43")
    assert other.digest != first.digest
    assert other.manifest["arm_digests"]["clean"] != first.manifest["arm_digests"]["clean"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_pollution_is_the_clean_arm_byte_for_byte(played: Play, scenario: str) -> None:
    digests = played(scenario, POLLUTION_LEVEL="0").manifest["arm_digests"]
    assert digests["faulty"] == digests["clean"] == played(scenario).manifest["arm_digests"]["clean"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pollution_bites_and_the_clean_arm_violates_nothing(played: Play, scenario: str) -> None:
    arms = played(scenario).summary["arms"]
    assert [v["invariant"] for v in arms["clean"]["verdicts"] if v["holds"] is False] == []
    assert any(v["holds"] is False for v in arms["faulty"]["verdicts"])


@pytest.mark.parametrize(("knobs", "package"), OTHER_PARTS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_other_parts_repeat_and_show_the_same_fault(
    played: Play, scenario: str, knobs: dict[str, str], package: str
) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed; testbed doctor names the extra")
    first = played(scenario, **knobs)
    again = played(scenario, **knobs, PYTHONHASHSEED="1")
    assert again.manifest["arm_digests"] == first.manifest["arm_digests"]
    assert first.summary["violated"] == played(scenario).summary["violated"]


def test_compare_sees_that_two_runs_are_the_same(played: Play, home: Path) -> None:
    a, b = played("tenant-leak"), played("tenant-leak", PYTHONHASHSEED="2")
    ran = call(home, "compare", str(a.folder), str(b.folder))
    assert ran.code == 0
    assert "the same, event for event" in ran.out


def test_compare_refuses_another_seed(played: Play, home: Path) -> None:
    a, b = played("tenant-leak"), played("tenant-leak", SEED="43")
    ran = call(home, "compare", str(a.folder), str(b.folder))
    assert ran.code == 4
    assert "seed: 42 against 43" in ran.err
    assert call(home, "compare", str(a.folder), str(b.folder), "--across", "seed").code == 0


def test_a_run_is_judged_and_shown_from_its_folder_alone(played: Play, home: Path) -> None:
    ran = call(home, "show", str(played("tenant-leak").folder))
    assert ran.code == 0
    for part in ("faulty-without:answer", "heatmap", "witness", played("tenant-leak").digest):
        assert part in ran.out


def test_recorded_timings_and_traces_are_apart(played: Play) -> None:
    folder = played("tenant-leak").folder
    trace = (folder / "arms/clean/trace.jsonl").read_text()
    assert '"ns"' not in trace and "_ms" not in trace
    assert (folder / "arms/clean/timings.jsonl").stat().st_size > 0
