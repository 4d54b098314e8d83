"""What a gate says in CI: JUnit, a step summary, annotations, benchmark files, ready workflows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from testbed.core.errors import InvalidInput
from testbed.diagnose.findings import Decision, Finding, Judged
from testbed.diagnose.gate import judge
from testbed.diagnose.regressions import decide
from testbed.report import ci, workflows
from testbed.report.gate import as_value, print_decision
from testbed.report.junit import to_xml
from tests.unit.diagnose.judged import BROKEN, arm_scores, cell, run, usual_cell


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> Decision:
    """A gate over two scenarios: one leaks and answers worse, one has a stale baseline."""
    results = tmp_path_factory.mktemp("worse")
    now = run(results, arms={"clean": (1.0, BROKEN)}, scores={"clean": arm_scores(0.8)})
    stale = judge("version-skew", usual_cell(), run(results / "b", scenario_digest="x"))
    return decide([judge("tenant-leak", usual_cell(), now), stale], without=["semantic-drift"])


@pytest.fixture(scope="module")
def fine(tmp_path_factory: pytest.TempPathFactory) -> Decision:
    return decide([judge("tenant-leak", usual_cell(), run(tmp_path_factory.mktemp("fine")))])


def many(n: int, outcome: str = "failed") -> Decision:
    findings = tuple(
        Finding("metric", outcome, "clean", f"number {i}: 50 % lower\nand, so on" + "x" * 300) for i in range(n)
    )  # type: ignore[arg-type]
    return Decision((Judged("tenant-leak", usual_cell(), findings),))


def said(decision: Decision) -> str:
    written = StringIO()
    print_decision(decision, Console(width=100, highlight=False, markup=False, file=written))
    return written.getvalue()


def test_a_terminal_names_scenario_metric_layer_delta_interval_and_first_witness(worse: Decision) -> None:
    text = " ".join(said(worse).split())
    assert "FAILED tenant-leak / answer-key, seed 42, clean: invariants" in text
    assert "no-cross-tenant is violated 7 times and was not" in text
    assert "witness op 9: tenant b was answered from a's entry written at op 4" in text
    assert re.search(
        r"true fell by 0\.200, 1\.000 -> 0\.800 \(95 % interval of the difference -0\.\d+ to -0\.\d+,", text
    )
    assert "layer answer" in text or "layer index" in text
    assert "stale baseline: changed since it was recorded: the scenario's file" in text
    assert "not gated semantic-drift (no baseline)" in text
    assert "gate FAILED: something is worse than the baseline" in text


def test_a_pass_is_said_as_one(fine: Decision) -> None:
    assert "gate        passed" in said(fine)
    assert as_value(fine)["exit_code"] == 0


def test_json_has_no_nan_and_the_numbers_of_each_metric(worse: Decision) -> None:
    value = json.loads(json.dumps(as_value(worse), allow_nan=False))
    metric = next(f for f in value["cells"][0]["findings"] if f["rule"] == "metric")
    assert metric["delta"] == pytest.approx(-0.2) and metric["low"] < metric["high"] < 0 and metric["p"] < 0.05


def test_junit_has_a_case_for_each_arm_and_seed_with_its_properties(worse: Decision) -> None:
    root = ET.fromstring(to_xml(worse))
    assert root.tag == "testsuites"
    cases = {case.get("name"): case for case in root.findall("./testsuite[@name='tenant-leak.answer-key']/testcase")}
    assert set(cases) == {f"{arm} seed=42" for arm in usual_cell().arms}
    clean = cases["clean seed=42"]
    failure = clean.find("failure")
    assert failure is not None and failure.get("type") == "invariants" and "witness: op 9" in (failure.text or "")
    properties = {p.get("name"): p.get("value") for p in cases["faulty-without:answer seed=42"].iter("property")}
    assert properties["seed"] == "42" and properties["layer"] == "answer"
    assert properties["digest"] == worse.cells[0].digest
    assert {p.get("value") for p in cases["clean+cure seed=42"].iter("property") if p.get("name") == "fix"} == {"cure"}
    assert len(root.findall("./testsuite[@name='version-skew.answer-key']/testcase/error")) == 1
    for element in (root, *root.findall("testsuite")):
        for name, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
            assert int(element.get(name, "-1")) == len(element.findall(f".//{tag}"))


def test_junit_survives_what_xml_cannot_hold() -> None:
    finding = Finding("metric", "failed", "clean", "a \x00 \ud800 <b> & ]]> \x1b[1m")
    root = ET.fromstring(to_xml(Decision((Judged("x", usual_cell(), (finding,)),))))
    failure = root.find(".//failure")
    assert failure is not None and failure.get("message") == "a ? ? <b> & ]]> ?[1m"


def test_a_summary_is_a_table_and_the_findings(worse: Decision) -> None:
    text = ci.to_summary(worse).decode()
    assert text.startswith("## RAG cache gate: FAILED")
    assert "| tenant-leak | answer-key | 42 |" in text
    assert "❌ **tenant-leak / answer-key, seed 42, clean** (invariants)" in text
    assert "Not gated, without a baseline: semantic-drift" in text


def test_a_summary_stays_within_its_limit_and_says_what_is_left_out() -> None:
    raw = ci.to_summary(many(6000))
    assert 1_000_000 < len(raw) <= 1024 * 1024
    assert re.search(rb"\n\d+ more findings are not shown: no room is left\n$", raw)
    assert b"more findings" not in ci.to_summary(many(3))


def test_a_summary_is_added_to_what_the_step_has_written(worse: Decision, tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("before\n")
    ci.write(worse, summary=str(tmp_path / "summary.md"))
    assert (tmp_path / "summary.md").read_text().startswith("before\n## RAG cache gate")


def test_annotations_stay_within_ten_of_each_kind_and_are_one_line_each(worse: Decision) -> None:
    lines = list(ci.workflow_commands(many(25)))
    assert len(lines) == 10
    assert lines[-1] == "::error title=RAG cache gate::and 16 more, in the log of this step"
    assert (
        lines[0].startswith("::error title=tenant-leak / answer-key%2C seed 42%2C clean (metric)::number 0%3A 50")
        is False
    )
    assert "50 %25 lower%0Aand, so on" in lines[0] and "\n" not in lines[0]
    assert len(list(ci.workflow_commands(many(10)))) == 10
    kinds = [line.split(" ")[0] for line in ci.workflow_commands(worse)]
    assert "::error" in kinds and kinds[-1] == "::warning"
    assert list(ci.workflow_commands(many(3, "noted"))) == []


def test_benchmark_files_have_the_forms_of_github_action_benchmark(fine: Decision, tmp_path: Path) -> None:
    ci.write(fine, bench=str(tmp_path / "out"))
    for name, unit, wanted in (
        ("bench-quality.json", "share", "tenant-leak / answer-key / seed 42 / clean / true"),
        ("bench-latency.json", "ms", "tenant-leak / answer-key / seed 42 / answer p95"),
    ):
        rows = json.loads((tmp_path / "out" / name).read_text())
        assert {row["unit"] for row in rows} == {unit}
        assert all(set(row) == {"name", "unit", "value", "extra"} for row in rows)
        assert all(isinstance(row["value"], int | float) for row in rows)
        assert wanted in {row["name"] for row in rows}
        assert len({row["name"] for row in rows}) == len(rows)


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_workflow_is_valid_by_its_schema(tmp_path: Path, service: str) -> None:
    pytest.importorskip("check_jsonschema")
    path = workflows.write(tmp_path, service)
    schema = {"github": "vendor.github-workflows", "gitlab": "vendor.gitlab-ci"}[service]
    checker = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(checker, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(
        re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in re.findall(r"uses:\s*(\S+)", path.read_text())
    )


@pytest.mark.parametrize("service", ["github", "gitlab"])
def test_a_workflow_calls_the_gate_with_options_that_exist(tmp_path: Path, service: str) -> None:
    text = workflows.write(tmp_path, service).read_text()
    (command,) = re.findall(r"python -m testbed (gate .*)", text)
    asked = re.findall(r"--[a-z-]+", command)
    shown = subprocess.run(
        [sys.executable, "-m", "testbed", "gate", "--help"], capture_output=True, text=True, check=True
    )
    assert asked and set(asked) <= set(re.findall(r"--[a-z-]+", shown.stdout))


def test_a_workflow_that_is_there_is_kept_unless_told(tmp_path: Path) -> None:
    path = tmp_path / ".gitlab-ci.yml"
    path.write_text("mine")
    with pytest.raises(InvalidInput, match="--force"):
        workflows.write(tmp_path, "gitlab")
    assert path.read_text() == "mine"
    workflows.write(tmp_path, "gitlab", force=True)
    assert "testbed gate" in path.read_text()


def test_a_cell_of_two_seeds_has_cases_for_both(tmp_path: Path) -> None:
    cells = [judge("x", cell(tmp_path / f"a{s}", seed=s), run(tmp_path / f"b{s}", seed=s)) for s in (1, 2)]
    names = [case.get("name") for case in ET.fromstring(to_xml(decide(cells))).iter("testcase")]
    assert "clean seed=1" in names and "clean seed=2" in names
