from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from testbed.core.scenario import Expect, Scenario, Variant, arms_of
from testbed.core.types import Event
from testbed.diagnose import summary
from testbed.diagnose.summary import Summarize
from testbed.record.folder import RunReader
from testbed.report.table import story
from testbed.run.plan import Plan
from testbed.run.settings import Settings
from tests.unit.record.recorded import ANSWER, GOLD, MISS, fill, start

LOST = Event(1, 1.5, "stack", "answer", {"query": "q1"}, "abcd", {"ranking": ["d9"], "sources": []})


def plan(**knobs: Any) -> Plan:
    expect = Expect("MRR@5", 0.1, "answer", ())
    variant = Variant("answer-key", "about it", (), (), SimpleNamespace(), expect)  # type: ignore[arg-type]
    return Plan(
        settings=Settings("tenant-leak", **knobs),
        scenario=Scenario("tenant-leak", "summary", "ledger", (variant,)),
        variant=variant,
        scenario_digest="5c",
        corpus=SimpleNamespace(name="ledger"),  # type: ignore[arg-type]
        ops=(),
        gold={1: GOLD},
        arms=tuple(arm for arm in arms_of(variant, ("answer",)) if arm.name in knobs.get("arms", (arm.name,))),
        layers=("answer",),
    )


def judged(tmp_path: Path, faulty: tuple[Event, ...], unsupported: Mapping[str, str], **knobs: Any) -> dict[str, Any]:
    judge = Summarize()
    with start(tmp_path) as writer:
        fill(writer, faulty=faulty)
        reader = RunReader(writer.folder, unfinished=True)
        arms = {name: judge.arm(reader, name) for name in ("clean", "faulty")}
        content, rows = judge.run(plan(**knobs), arms, unsupported, "d1" * 32)
    assert [(row["arm"], row["op"]) for row in rows] == [("clean", 1), ("faulty", 1)]
    return content


def test_a_summary_has_every_field_that_it_documents_and_no_other(tmp_path: Path) -> None:
    content = judged(tmp_path, (MISS, LOST), {"faulty-without:answer": "no such layer"})
    documented = re.findall(r"^(\w[\w. <>]*?)(?:  .*)?$", (summary.__doc__ or "").split("\n\n")[1], re.MULTILINE)
    names = {name for line in documented for name in line.replace("arms.<arm>", "arms").split()}
    assert set(content) == names
    assert json.loads(json.dumps(content, allow_nan=False)) == content


def test_a_summary_can_be_told(tmp_path: Path) -> None:
    content = judged(tmp_path, (MISS, LOST), {"faulty-without:answer": "no such layer"})
    out = io.StringIO()
    story(content, Path("folder"), Console(file=out, width=100, markup=False))
    assert "unsupported" in out.getvalue() and "NOT so" in out.getvalue()


def test_arms_keep_the_order_in_which_they_ran(tmp_path: Path) -> None:
    content = judged(tmp_path, (MISS, LOST), {"faulty-without:answer": "x"})
    assert content["order"] == ["clean", "faulty", "faulty-without:answer"]
    assert content["arms"]["faulty-without:answer"] == {"status": "unsupported", "why": "x"}


def test_a_drop_is_the_faulty_arms_mean_below_the_clean_arms(tmp_path: Path) -> None:
    content = judged(tmp_path, (MISS, LOST), {})
    assert content["arms"]["clean"]["means"]["MRR@5"] == 1.0
    assert content["arms"]["faulty"]["means"]["MRR@5"] == 0.0
    assert content["deltas"]["faulty"]["MRR@5"]["mean"] == -1.0


def test_a_full_run_is_held_to_its_promise(tmp_path: Path) -> None:
    broken = judged(tmp_path / "a", (MISS, ANSWER), {})["expect"]
    assert broken["applies"]
    assert "faulty: MRR@5 fell by 0.0000, expected at least 0.1000" in broken["failures"]


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"level": 0.3}, "POLLUTION_LEVEL=0.3 is below 1"),
        ({"dataset": "elsewhere"}, "DATASET=elsewhere is not the scenario's own (ledger)"),
        ({"queries": 60}, "QUERIES=60 is below 400"),
    ],
)
def test_another_run_is_not_held_to_it_and_says_why(tmp_path: Path, knobs: dict[str, Any], why: str) -> None:
    expect = judged(tmp_path, (MISS, ANSWER), {}, **knobs)["expect"]
    assert (expect["applies"], expect["why_not"], expect["failures"]) == (False, why, [])


@pytest.mark.parametrize(
    ("arms", "left_out", "failures"),
    [
        (("clean", "faulty"), "faulty-without:answer", ["faulty: MRR@5 fell by 0.0000, expected at least 0.1000"]),
        (("faulty",), "clean, faulty-without:answer", ["faulty: MRR@5 fell by 0.0000, expected at least 0.1000"]),
        (("clean",), "faulty, faulty-without:answer", []),
    ],
)
def test_where_arms_are_left_out_the_others_are_judged_and_nothing_is_said_of_those(
    tmp_path: Path, arms: tuple[str, ...], left_out: str, failures: list[str]
) -> None:
    expect = judged(tmp_path, (MISS, ANSWER), {}, arms=arms)["expect"]
    assert (expect["applies"], expect["why_not"]) == (False, f"--arms leaves out {left_out}")
    assert expect["failures"] == failures


def test_every_judge_has_a_version() -> None:
    names = {
        "MRR@5",
        "nDCG@5",
        "recall@5",
        "faithful",
        "true",
        "no-cross-tenant",
        "dict-with-losses",
        "freshness",
        "lineage",
    }
    assert names <= set(Summarize().versions)
