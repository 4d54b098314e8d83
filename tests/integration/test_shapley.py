"""Two faults in a row through a whole run: the outer cache hides what the inner one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.diagnose.summary import Summarize
from testbed.run.execute import run_scenario
from testbed.run.settings import Settings

pytest.importorskip("torch", reason="the models extra is not installed")
SOURCE = """
from testbed.core.scenario import Expect, Scenario, Variant
from testbed.faults.keys import KeyPartDropped
from testbed.workloads.stream import Stream

FAULTS = (KeyPartDropped("answer", "tenant"), KeyPartDropped("retrieval", "tenant"))
BOTH = Variant("both", "", FAULTS, (), Stream(), Expect("MRR@5", 0.05, "answer+retrieval", ()))
SCENARIO = Scenario("two-keys", "both keys leave the tenant out", "ledger", (BOTH,))
"""


def test_both_faulty_layers_get_their_share_and_no_other_does(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "two_keys.py").write_text(SOURCE)
    asked = Settings(
        "two-keys", queries=60, blame="shapley", scenarios_dir=tmp_path / "scenarios", results_dir=tmp_path
    )
    summary = json.loads((run_scenario(asked, Summarize()) / "summary.json").read_text())
    found = summary["shapley"]
    told = {s["layer"]: s for s in found["shares"]}
    assert [s["layer"] for s in found["shares"][:2]] == ["answer", "retrieval"]
    assert told["retrieval"]["low"] < told["retrieval"]["share"] < told["retrieval"]["high"]
    assert all(abs(told[layer]["share"]) < 1e-9 for layer in ("embedding", "index", "text"))
    assert sum(s["share"] for s in told.values()) + found["rest"] == pytest.approx(found["drop"], abs=1e-9)
    drop = summary["arms"]["clean"]["means"]["MRR@5"] - summary["arms"]["faulty"]["means"]["MRR@5"]
    assert found["drop"] == pytest.approx(drop, abs=1e-9)
    alone = {b["layer"]: b["share"] for b in summary["blame"]}
    assert alone["retrieval"] < 0.05 < told["retrieval"]["share"]  # bypassing one layer at a time cannot see it
