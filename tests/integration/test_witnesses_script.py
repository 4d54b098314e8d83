"""``scripts/witnesses.py`` measures what it says: on a violation with a short witness, and on one that has none."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the models extra is not installed")
ROOT = Path(__file__).resolve().parents[2]


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("witnesses", ROOT / "scripts" / "witnesses.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["witnesses"] = module
    spec.loader.exec_module(module)
    return module


witnesses = loaded()
SMALL = ["tenant-leak/answer-key", "--queries", "20", "--seed", "42"]


def test_each_invariant_that_is_broken_is_a_row_and_its_file_exits_1(tmp_path: Path) -> None:
    out = tmp_path / "table.md"
    assert witnesses.main([*SMALL, "--out", str(out)]) == 0
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.read_text().splitlines()[2:]]
    told = [dict(zip(witnesses.HEAD, row, strict=True)) for row in rows]
    assert [row["invariant"] for row in told] == ["no-cross-tenant", "dict-with-losses"]
    for row in told:
        assert row["scenario"] == "tenant-leak / answer-key"
        assert 2 <= int(row["witness"]) <= int(row["ops"]) <= 21 and 0 < int(row["documents"]) < 632
        assert (row["replays"], row["file exits"]) == ("yes", "1")


def test_a_witness_that_is_too_long_or_whose_file_shows_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(witnesses, "source", lambda shown: f'print("{shown.invariant} holds")')
    assert witnesses.main(SMALL) == 1
    assert "0 of 2 as they should be" in (out := capsys.readouterr().out) and "file: 0: no-cross-tenant holds" in out
    monkeypatch.setattr(witnesses, "MAX_OPS", 2)
    assert witnesses.main(SMALL) == 1
    assert "more than 2 operations" in capsys.readouterr().out


def test_a_fault_that_breaks_nothing_is_a_row_of_its_own() -> None:
    settings = witnesses.Settings("tenant-leak", "answer-key", queries=20, level=0.0, arms=("clean", "faulty"))
    (row,) = witnesses.rows_of(settings)
    assert (row.number, row.why, witnesses.cells(row)[1]) == (0, "", "violates nothing")


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
