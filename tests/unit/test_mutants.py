"""The mutants are edits of the code as it stands, and the rules that look at them are not blind."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from testbed.run import scenarios
from tests.scripts import loaded

ROOT = Path(__file__).resolve().parents[2]


mutants = loaded("mutants")


@pytest.mark.parametrize("mutant", mutants.MUTANTS, ids=lambda m: m.name)
def test_a_mutant_is_one_edit_that_leaves_valid_code(mutant: Any) -> None:
    source = (ROOT / "testbed" / mutant.file).read_text(encoding="utf-8")
    assert source.count(mutant.old) == 1, f"{mutant.file} has changed: write the mutant anew"
    ast.parse(source.replace(mutant.old, mutant.new))


def test_there_are_at_least_40_mutants_of_distinct_names() -> None:
    assert len({m.name for m in mutants.MUTANTS}) == len(mutants.MUTANTS) >= 40


def test_the_cells_are_there() -> None:
    for cell in {cell for m in mutants.MUTANTS for cell in m.cells}:
        variant = scenarios.load(cell.scenario).variant(cell.variant)
        assert variant is not None
        fixes = {fix.name for fix in variant.fixes}
        assert all(arm in ("clean", "faulty") or arm.removeprefix("faulty+") in fixes for arm in cell.arms)


def said(*noticed: str, moved: bool = True) -> dict[str, Any]:
    return {"noticed": list(noticed), "told": [f"clean: {rule} failed" for rule in noticed], "moved": moved}


@pytest.mark.parametrize(
    ("after", "rule"),
    [
        (said(moved=False), ""),
        (None, "error"),
        (said("invariants", "metric"), "invariants"),
        (said("metric"), "metric"),
        (said(), "exact"),
    ],
)
def test_the_first_rule_that_fails_is_named_before_a_trace_that_is_merely_another(after: Any, rule: str) -> None:
    assert mutants.noticed(after)[0] == rule


def test_a_rule_that_fails_later_counts_more_than_another_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The clean run of one scenario may only have moved where that of the next fails."""
    mutant = mutants.MUTANTS[0]
    (tmp_path / "testbed" / mutant.file).parent.mkdir(parents=True)
    (tmp_path / "testbed" / mutant.file).write_text(mutant.old)
    answers = iter([said(), said(moved=False), said("invariants")])
    monkeypatch.setattr(mutants, "play", lambda copy, cell, queries, before=None: next(answers) if before else {"a": 1})
    assert mutants.Plays(tmp_path, {}).first_notice(mutant)[0] == "invariants"
