"""The mutants are edits of the code as it stands, and the rules that look at them are not blind."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.run import scenarios

ROOT = Path(__file__).resolve().parents[2]


def loaded() -> Any:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


mutants = loaded()


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


def told(**changed: Any) -> dict[str, Any]:
    return {"clean": {"means": {"MRR@5": 0.9, "leak rate": 0.0}, "violated": [], "hits": {"answer": 0.5}} | changed}


@pytest.mark.parametrize(
    ("after", "rule"),
    [
        (told(), ""),
        (None, "error"),
        ({}, "error"),
        (told(violated=["lineage"]), "invariants"),
        (told(means={"MRR@5": 0.87, "leak rate": 0.0}), "metric"),
        (told(means={"MRR@5": 0.89, "leak rate": 0.0}), ""),
        (told(means={"MRR@5": 0.95, "leak rate": 0.1}), "metric"),
        (told(hits={"answer": 0.4}), "hits"),
        (told(hits={"answer": 0.6}), ""),
    ],
)
def test_a_rule_notices_what_is_worse_and_nothing_else(after: Any, rule: str) -> None:
    assert mutants.noticed(told(), after)[0] == rule


def test_what_was_violated_before_is_no_news() -> None:
    assert mutants.noticed(told(violated=["lineage"]), told(violated=["lineage"])) == ("", "")
