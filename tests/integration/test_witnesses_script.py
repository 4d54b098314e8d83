"""``scripts/witnesses.py`` measures what it says: on a violation with a short witness, and on one that has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts import loaded

pytest.importorskip("torch", reason="the models extra is not installed")
ROOT = Path(__file__).resolve().parents[2]


witnesses = loaded("witnesses")
SMALL = ["tenant-leak/answer-key", "--queries", "20", "--seed", "42"]


def test_each_invariant_that_is_broken_is_a_row_and_its_file_exits_1(tmp_path: Path) -> None:
    out = tmp_path / "table.md"
    assert witnesses.main([*SMALL, "--out", str(out)]) == 0
    lines = [line for line in out.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]
    told = [dict(zip(witnesses.HEAD, row, strict=True)) for row in rows]
    assert {row["invariant"] for row in told} == {"no-cross-tenant", "dict-with-losses"} and len(told) == 2
    for row in told:
        assert (row["scenario"], row["variants"], row["violations"]) == ("tenant-leak", "1", "1")
        assert 2 <= int(row["ops of the witness"]) <= int(row["ops to the read"]) <= 21
        assert 0 < int(row["documents"]) < 632 and (row["replays"], row["file exits 1"]) == ("yes", "yes")


def test_a_witness_that_is_too_long_or_whose_file_shows_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(witnesses, "source", lambda shown: f'print("{shown.invariant} holds")')
    assert witnesses.main(SMALL) == 1
    assert "0 of 2 violations have" in (out := capsys.readouterr().out) and "file: 0: no-cross-tenant holds" in out
    monkeypatch.setattr(witnesses, "MAX_OPS", 2)
    assert witnesses.main(SMALL) == 1
    assert "more than 2 operations" in capsys.readouterr().out


def test_which_violations_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(witnesses, "row_of", lambda settings, case, number, player, alone: (number, alone))
    settings = witnesses.Settings("tenant-leak", "answer-key", queries=40, arms=("clean", "faulty"))
    first, ends, every = (list(witnesses.rows_of(settings, which)) for which in ("first", "ends", "all"))
    (_, second), of = (number for number, _ in first), len(every)
    assert first == [(1, True), (second, True)] and 2 < second < of
    assert ends == [(1, True), (second - 1, False), (second, True), (of, False)]
    assert [number for number, _ in every] == list(range(1, of + 1)) and [r for r in every if r[1]] == first


def test_a_fault_that_breaks_nothing_is_a_row_of_its_own() -> None:
    settings = witnesses.Settings("tenant-leak", "answer-key", queries=20, level=0.0, arms=("clean", "faulty"))
    (row,) = witnesses.rows_of(settings)
    assert (row.number, row.why) == (0, "") and "violates nothing" in witnesses.line(row)
    told = witnesses.closing([row])
    assert told.startswith("0 of 0 violations") and "takes more questions to break no-cross-tenant" in told


def test_a_row_of_the_table_tells_the_worst_of_its_variants() -> None:
    good = witnesses.Row("s", "a", "freshness", 1, 9, 30, 4, 2, True, "1", 0.5)
    bad = witnesses.Row("s", "b", "freshness", 1, 3, 50, 11, 7, False, "0: holds", 2.0, "more than 10 operations")
    assert "| s | freshness | 1 | 1 | 30 | 4 | 2 | yes | yes | 0.5 |" in witnesses.table([good])
    assert "| s | freshness | 2 | 2 | 30 to 50 | 11 | 7 | 1 of 2 | 1 of 2 | 2.0 |" in witnesses.table([good, bad])
    none = witnesses.Row("s", "c", "freshness", 1, 3, 50, exits="no file", why="cannot be played")
    assert "| none | 2 | 1 of 2 | 1 of 2 |" in witnesses.table([good, none])


def test_names_choose_scenarios_and_variants() -> None:
    first = witnesses.chosen([], every_variant=False)
    every = witnesses.chosen([], every_variant=True)
    assert len(first) == len({name for name, _ in every}) and set(first) < set(every)
    assert witnesses.chosen(["version-skew", "tenant-leak/retrieval-key"], every_variant=False)[1] == (
        "tenant-leak",
        "retrieval-key",
    )
    with pytest.raises(SystemExit, match="expected one of answer-key"):
        witnesses.chosen(["tenant-leak/none"], every_variant=False)
