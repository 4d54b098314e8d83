"""Every variant of prefix-leak on a short stream: the fault shows, the layer is found, the fixes cure it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the runner extra")
pytest.importorskip("transformers", reason="needs the runner extra")

from testbed.core.errors import InvalidInput
from testbed.diagnose.summary import Summarize
from testbed.run import plan, scenarios
from testbed.run.execute import run_scenario
from testbed.run.settings import Settings

pytestmark = [pytest.mark.models, pytest.mark.redis]
VARIANTS = {v.name: v for v in scenarios.load("prefix-leak").variants}


def summary(folder: Path, variant: str, queries: int, arms: tuple[str, ...]) -> dict[str, Any]:
    settings = Settings("prefix-leak", variant=variant, queries=queries, arms=arms, results_dir=folder)
    found: dict[str, Any] = json.loads((run_scenario(settings, Summarize()) / "summary.json").read_text())
    return found


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_WORKERS", "1")


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_bites_and_its_first_cure_cures(tmp_path: Path, name: str) -> None:
    expect = VARIANTS[name].expect
    cured, without = f"faulty+{expect.cured_by[0]}", "faulty-without:prefix"
    found = summary(tmp_path, name, 60, ("clean", "faulty", cured, without))
    means = {arm: found["arms"][arm]["means"][expect.metric] for arm in found["order"]}
    broken = {v["invariant"] for v in found["arms"]["faulty"]["verdicts"] if v["holds"] is False}
    assert means["faulty"] != means["clean"] == means[cured] == means[without]
    assert set(expect.violates) <= broken
    assert all(v["holds"] is not False for v in found["arms"]["clean"]["verdicts"])
    assert found["witness"]["layer"] == "prefix"


def test_the_clean_arm_says_what_the_model_says_when_it_reads_everything_anew(tmp_path: Path) -> None:
    found = summary(tmp_path, "reload", 60, ("clean",))
    assert found["arms"]["clean"]["means"]["answer-containment"] == 1.0
    again = summary(tmp_path, "reload", 60, ("clean",))
    assert again["digest"] == found["digest"]


def test_the_scenario_takes_its_own_stack_and_data_and_says_so() -> None:
    made = plan.make(Settings("prefix-leak", queries=10))
    assert made.settings.stack == "testbed.stacks.prefixed:build"
    assert [arm.bypass for arm in made.arms if arm.bypass] == [("prefix",), ("text",)]
    with pytest.raises(InvalidInput, match=r"STACK=llama-index.*leave STACK out"):
        plan.make(Settings("prefix-leak", stack="llama-index"))
    with pytest.raises(InvalidInput, match=r"DATASET=ledger.*brings its own"):
        plan.make(Settings("prefix-leak", dataset="ledger"))
