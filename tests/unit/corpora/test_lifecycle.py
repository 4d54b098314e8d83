from __future__ import annotations

from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.corpora.lifecycle import build_lifecycle

HEADER = "product,line,released,ends\n"


def test_the_newest_line_follows_what_really_happened() -> None:
    corpus = build_lifecycle()
    query = next(q for q in corpus.queries if q.text == "What is the newest release line of Python?")
    record = corpus.records[query.id]
    values = []
    for version in (1, 2, 3, 4):
        claim = corpus.gold(0, query, {record: version}).claim
        assert claim is not None
        values.append(claim.value)
    assert values == ["3.10", "3.11", "3.12", "3.13"]
    assert [corpus.facts[record, v]["valid_from"] for v in (1, 4)] == ["2022-01-01", "2025-01-01"]


def test_revisions_happen_year_by_year_and_versions_rise() -> None:
    corpus = build_lifecycle()
    days = [corpus.facts[r.doc.id, r.doc.version]["valid_from"] for r in corpus.revisions]
    assert days == sorted(days)
    seen = {d.id: 1 for d in corpus.docs}
    for revision in corpus.revisions:
        seen[revision.doc.id] += 1
        assert revision.doc.version == seen[revision.doc.id]


def test_a_line_that_did_not_change_has_no_revision(tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    path.write_text(HEADER + "Tool,1.9,2020-01-01,2024-02-29\nTool,1.10,2023-06-01,\n")
    corpus = build_lifecycle(path)
    newest = [d.text for d in corpus.docs if d.id == "tool-newest-release-line"]
    later = [(r.doc.version, "1.10" in r.doc.text) for r in corpus.revisions if r.doc.id == "tool-newest-release-line"]
    assert "1.9" in newest[0]
    assert later == [(2, True)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("Tool,1,someday,", "lines.csv:2: 'someday' is not a date"),
        ("Tool,1,2023-01-01,", "needs a line released before"),
    ],
)
def test_wrong_facts_are_refused(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lines.csv"
    path.write_text(HEADER + row + "\n")
    with pytest.raises(InvalidInput, match=message):
        build_lifecycle(path)
