from __future__ import annotations

import json
from dataclasses import replace
from math import isnan, nan
from pathlib import Path

import pytest

from testbed.core.errors import InvalidInput
from testbed.record.baseline import ArmRecord, Baseline, Cell, names, packed, read, refresh, shared, unpacked, write

ARM = ArmRecord("ok", "aa", {"freshness": True}, {"true": 0.5}, {"true": "0y.U"})
CELL = Cell(
    variant="answer-key",
    seed=42,
    level=1.0,
    queries=400,
    stack="reference",
    store="faiss",
    dataset="",
    deterministic=True,
    made_from={"scenario": "5c", "data": {"name": "ledger"}, "metrics": {}},
    digest="dd",
    promise=(),
    tolerance={"true": 0.02},
    arms={"clean": ARM, "clean+fix": replace(ARM, series={"true": "=clean"})},
)


def test_reciprocal_ranks_and_unscored_asks_survive_packing() -> None:
    values = [0.0, 1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5, 2 / 3, nan]
    text = packed(values)
    assert len(text) == len(values)
    assert unpacked(text)[:-1] == pytest.approx(values[:-1]) and isnan(unpacked(text)[-1])
    assert packed([0.5] * 400) == "U*400"
    assert unpacked("U*400") == [0.5] * 400
    assert unpacked(packed([])) == []
    assert unpacked(packed([0.31]))[0] == pytest.approx(0.31, abs=0.5 / 60)


def test_a_series_that_is_the_clean_arms_is_written_once() -> None:
    assert shared({"a": "0y", "b": "yy"}, {"a": "0y", "b": "00"}) == {"a": "=clean", "b": "yy"}
    assert CELL.series("clean+fix")["true"][:2] == [0.0, 1.0]


def test_a_baseline_is_read_as_it_was_written(tmp_path: Path) -> None:
    baseline = Baseline("tenant-leak", (CELL,))
    assert write(tmp_path / "new", baseline) == tmp_path / "new" / "tenant-leak.json"
    assert read(tmp_path / "new", "tenant-leak") == baseline
    assert names(tmp_path / "new") == ["tenant-leak"]
    assert read(tmp_path, "tenant-leak") is None and names(tmp_path / "none") == []


def test_a_cell_takes_the_place_of_the_one_it_renews_and_of_no_other(tmp_path: Path) -> None:
    other = replace(CELL, seed=7)
    both = Baseline("x", (CELL,)).with_cell(other)
    assert [cell.seed for cell in both.cells] == [7, 42]
    renewed = both.with_cell(replace(CELL, digest="ee"))
    assert [(cell.seed, cell.digest) for cell in renewed.cells] == [(7, "dd"), (42, "ee")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not a baseline"),
        ("[]", "format=None"),
        ('{"format": 1}', "format=1"),
        ('{"format": 2, "scenario": "x", "cells": [{}]}', "not a baseline"),
        ('{"format": 2, "scenario": "y", "cells": []}', "scenario='y' must be 'x'"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"x\.json") as said:
        read(tmp_path, "x")
    assert says in str(said.value)


def test_a_series_that_was_damaged_by_hand_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, Baseline("x", (CELL,)))
    path.write_text(path.read_text().replace("0y.U", "0y ?"))
    with pytest.raises(InvalidInput, match="not a baseline"):
        read(tmp_path, "x")


def test_the_command_that_renews_a_cell_names_what_is_not_usual() -> None:
    assert refresh("x") == "make baseline NAME=x"
    assert refresh("x", CELL) == "make baseline NAME=x VARIANT=answer-key SEED=42"
    odd = replace(CELL, queries=120, stack="mine:build", level=0.3)
    assert refresh("x", odd).endswith("SEED=42 POLLUTION_LEVEL=0.3 QUERIES=120 STACK=mine:build")


def test_a_file_is_small_and_its_lines_are_ready_for_a_review(tmp_path: Path) -> None:
    raw = write(tmp_path, Baseline("x", (CELL,))).read_text()
    assert json.loads(raw)["cells"][0]["arms"]["clean"]["series"] == {"true": "0y.U"}
    assert raw.count("\n") > 40
