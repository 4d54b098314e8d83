"""The index of scenarios: what is committed is what the scenarios say, and every public report has its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.report import index
from testbed.run import scenarios

FOLDER = Path(__file__).resolve().parents[3] / "scenarios"
KNOWN = index.anomalies(FOLDER)
PLAYED = index.played(scenarios.load(name) for name in scenarios.names())


def test_the_committed_index_is_current() -> None:
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == index.markdown(), (
        "python -m testbed list --format markdown > scenarios/README.md"
    )


def test_every_report_is_played_by_a_scenario_or_says_why_not() -> None:
    assert [a.id for a in KNOWN if a.id not in PLAYED and not a.reason] == []


def test_a_reason_says_where_the_report_belongs() -> None:
    wrong = [a.id for a in KNOWN if a.reason and not re.fullmatch(rf"({'|'.join(index.PLACES)}): .+", a.reason)]
    assert wrong == []


def test_scenarios_name_known_reports_only() -> None:
    assert sorted(set(PLAYED) - {a.id for a in KNOWN}) == []


def test_reports_are_listed_once_with_title_and_address() -> None:
    assert len({a.id for a in KNOWN}) == len(KNOWN) >= 114
    assert [a.id for a in KNOWN if not a.title or not a.kind or not a.report.startswith("https://")] == []


def test_the_index_names_every_scenario_variant_and_report() -> None:
    text = index.markdown()
    for name in scenarios.names():
        assert f"| [{name}]({name.replace('-', '_')}.py) |" in text
        assert all(f"| {variant.name} |" in text for variant in scenarios.load(name).variants)
    assert all(f"| {a.id} |" in text for a in KNOWN)


@pytest.mark.parametrize("row", ["F1-1,a,b,https://x,", "F1-01,a,b", "id,a,b,https://x,"])
def test_a_row_that_is_none_is_told_with_its_line(tmp_path: Path, row: str) -> None:
    (tmp_path / "anomalies.csv").write_text(f"id,class,title,report,reason\n{row}\n")
    with pytest.raises(InvalidInput, match=r"anomalies\.csv:2: .* must be id"):
        index.anomalies(tmp_path)


def test_a_missing_list_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read"):
        index.anomalies(tmp_path)
