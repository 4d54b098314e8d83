from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.report import arms
from testbed.report.columns import to_csv, to_markdown
from testbed.report.table import print_run, story
from tests.unit.record.recorded import fill, start
from tests.unit.report.summaries import SUMMARY, summary


def told(found: dict[str, Any], *, width: int = 100, encoding: str = "utf-8", colour: bool = False) -> str:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None, markup=False
    )
    story(found, Path("results/tenant-leak/run"), console)
    out.flush()
    return raw.getvalue().decode(encoding)


def row(text: str, arm: str) -> list[str]:
    (line,) = re.findall(rf"^{re.escape(arm)} .*$", text, re.MULTILINE)
    return re.split(r" {2,}", line.strip())


def test_each_arm_is_a_row_with_its_scores_and_verdicts() -> None:
    text = told(SUMMARY, width=120)
    assert row(text, "arm") == [
        "arm",
        "MRR@5",
        "faithful",
        "true",
        "delta",
        "valid hits",
        "hits",
        "p95 ms",
        "invariants",
    ]
    assert row(text, "clean") == ["clean", "0.900", "1.000", "0.950", "0.400", "0.400", "12.3", "hold"]
    assert row(text, "faulty")[3:5] == ["0.600", "-0.350"]
    assert row(text, "faulty")[-1] == "no-cross-tenant VIOLATED"
    assert row(text, "faulty+typed-tenant-key")[4] == "+0.000"
    assert row(text, "clean+typed-tenant-key")[4] == "+0.000"
    assert row(text, "faulty-without:answer")[-1] == "unsupported: no such layer"


def test_delta_stands_beside_the_metric_that_the_scenario_is_about() -> None:
    names = [c.name for c in arms.columns(summary(metric="MRR@5"))]
    assert names[1:3] == ["MRR@5", "delta"]


def test_the_story_names_cure_price_blame_witness_and_where_it_is() -> None:
    text = " ".join(told(SUMMARY).split())
    for part in (
        "typed-tenant-key recovers 100 %; costs 0.000 true and 0.010 hit rate on a clean stack, 0.000 hit rate on",
        "answer 102 %, retrieval 0 %",
        "the heatmap alone says answer (confidence 0.86), which agrees",
        "150 faithful but untrue",
        "op 18: tenant b asked 'how long?' and was answered from a's entry written at op 7 (no-cross-tenant)",
        "cured by typed-tenant-key: so it is",
        "results/tenant-leak/run",
        SUMMARY["digest"],
    ):
        assert part in text


def test_the_heatmap_shades_hits_and_the_drop() -> None:
    text = told(SUMMARY)
    assert re.search(r"^  answer {4} ▒█\?$", text, re.MULTILINE)
    assert re.search(r"^  drop {6} ▒█\?  true, at most 0\.400$", text, re.MULTILINE)


def test_ascii_where_the_terminal_has_no_blocks() -> None:
    text = told(SUMMARY, encoding="ascii")
    assert re.search(r"^  answer {4} :#\?", text, re.MULTILINE)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    found = summary(expect=SUMMARY["expect"] | {"failures": ["faulty: something long " * 8]})
    widest = max(
        len(line) for line in told(found, width=width).splitlines() if not line.startswith(("digest", "results"))
    )
    assert widest <= width


def test_narrow_terminals_keep_the_columns_that_matter() -> None:
    text = told(SUMMARY, width=80)
    assert "valid hits" in text and "MRR@5" in text and "true" in text
    assert "p95 ms" not in text.split("fixes")[0]


def test_violations_are_counted_where_there_is_no_room_for_their_names() -> None:
    text = told(SUMMARY, width=100)
    assert row(text, "faulty")[-1] == "1 VIOLATED"
    assert "no-cross-tenant 37 times" in text


def test_it_fits_on_a_screen() -> None:
    assert len(told(SUMMARY).splitlines()) <= 45


def test_violations_are_red_only_where_there_is_colour() -> None:
    assert "\x1b[1;31mno-cross-tenant VIOLATED" in told(SUMMARY, width=120, colour=True)
    assert "\x1b" not in told(SUMMARY)


def test_a_version_table_is_shown_where_there_is_one() -> None:
    parts = [{"part": "model", "actual": "v2 (9af3)", "believed": "v1 (77c0)", "agree": "no"}]
    text = told(summary(versions=parts))
    assert row(text, "model") == ["model", "v2 (9af3)", "v1 (77c0)", "no"]


def test_data_without_a_ledger_is_labelled() -> None:
    found = summary(metric="answer-containment")
    for of_arm in found["arms"].values():
        if "means" in of_arm:
            of_arm["means"] = {"MRR@5": 1.0, "answer-containment": 0.5, "lexical-grounding": 0.9}
            of_arm["quadrants"] = None
    text = told(found)
    assert "contains" in text and "grounding*" in text and "not faithfulness" in text
    assert "faithful but untrue" not in text


def test_blame_that_could_not_be_told_says_why() -> None:
    unsure = [{"layer": "answer", "share": None, "why": "the drop of 0.0001 is not clearly above 0"}]
    text = told(summary(blame=unsure, published_attribution=[], heatmap=None, witness=None))
    assert "could not tell: the drop of 0.0001" in text
    few = [
        {**unsure[0], "worse": 3, "mended": 3, "drop": 0.01},
        {**unsure[0], "layer": "text", "worse": 3, "mended": 0, "drop": 0.01},
    ]
    found = summary(blame=few, published_attribution=[], heatmap=None, witness=None, deterministic=True)
    text = " ".join(told(found).split())
    assert "asks that are worse: 3, too few for shares; without the layer are mended: answer 3, text 0" in text


def test_an_unheld_expectation_says_why() -> None:
    expect = SUMMARY["expect"] | {"applies": False, "why_not": "QUERIES=60 is below 400"}
    assert "not held to it, because QUERIES=60 is below 400" in told(summary(expect=expect))


def record(results: Path, found: dict[str, Any]) -> Path:
    with start(results) as writer:
        fill(writer)
        return writer.finish(found, [])


@pytest.mark.parametrize(("failures", "code"), [([], 0), (["faulty: true fell by 0.0100"], 1)])
def test_a_broken_promise_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], failures: list[str], code: int
) -> None:
    folder = record(tmp_path, summary(expect=SUMMARY["expect"] | {"failures": failures}))
    assert print_run(folder, Console(markup=False), verify=True) == code
    text = capsys.readouterr().out
    assert ("NOT so" in text) == bool(failures)
    assert all(failure in text for failure in failures)


def test_json_is_the_summary_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = record(tmp_path, SUMMARY)
    print_run(folder, Console(), as_json=True)
    assert json.loads(capsys.readouterr().out) == {**SUMMARY, "folder": str(folder)}


def test_arms_as_markdown_and_csv() -> None:
    columns = arms.columns(SUMMARY)
    lines = to_markdown(columns).splitlines()
    assert lines[0].startswith("| arm | MRR@5 |") and lines[1].startswith("| --- | ---: |")
    assert len(lines) == 2 + len(SUMMARY["arms"])
    assert to_csv(columns).splitlines()[1].startswith("clean,0.900,1.000,0.950,")


SHARES: dict[str, Any] = {
    "layers": ["answer", "retrieval"],
    "arms": ["faulty-without:answer+retrieval"],
    "exact": True,
    "drop": 0.35,
    "rest": 0.01,
    "why": "",
    "shares": [
        {"layer": "answer", "share": 0.24, "low": 0.2, "high": 0.28, "error": None},
        {"layer": "retrieval", "share": 0.1, "low": None, "high": None, "error": 0.02},
        {"layer": "text", "share": 0.0, "low": 0.0, "high": 0.0, "error": None},
    ],
}


def test_shares_of_several_layers_are_told_and_the_arms_they_took_are_left_out_of_the_table() -> None:
    ran = {**SUMMARY["arms"], "faulty-without:answer+retrieval": SUMMARY["arms"]["clean"]}
    order = [*SUMMARY["order"], "faulty-without:answer+retrieval"]
    text = told(summary(shapley=SHARES, arms=ran, order=order), width=120)
    assert "shapley     the drop of 0.350 true is shared by:" in text
    assert "answer +0.240 [+0.200, +0.280], retrieval +0.100 ± 0.020, the other layers nothing" in text
    assert "+0.010 is no layer's" in text and "repair" not in text
    mended = SHARES | {"repair": {"layers": ["answer", "retrieval"], "worse": 46, "left": 1}}
    text = told(summary(shapley=mended, deterministic=True), width=120)
    assert "repair      asks worse than in the clean arm: 46; without answer and retrieval 1, and no fewer" in text
    assert "faulty-without:answer+retrieval" not in text
    assert "could not tell: arm x did not run" in told(
        summary(shapley=SHARES | {"shares": [], "why": "arm x did not run"})
    )


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (
            {},
            "first served at 9 s, noticeable 16 s later, 12 entries poisoned (one of them spread to 3), served until",
        ),
        (
            {"time_to_detect_s": None, "blast_radius": 0},
            "first served at 9 s, never loud enough to be noticed, 12 entries",
        ),
    ],
)
def test_how_the_pollution_spread_is_one_sentence(changed: dict[str, Any], line: str) -> None:
    found = {
        "first_bad_s": 9.0,
        "time_to_detect_s": 16.0,
        "time_to_clean_s": 1.0,
        "blast_radius": 3,
        "poisoned": [0, 12],
    }
    text = " ".join(told(summary(pollution=found | changed)).split())
    assert f"pollution {line}" in text
    assert "pollution " not in told(summary(pollution=found | {"first_bad_s": None}))
