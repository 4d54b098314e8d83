from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import Incomparable, InvalidInput
from testbed.record.compare import Change, compare, differences
from testbed.record.folder import RunReader
from tests.unit.record.recorded import DESCRIBED, MISS, fill, record, start


def test_runs_of_the_same_experiment_are_compared_arm_by_arm(tmp_path: Path) -> None:
    a = RunReader(record(tmp_path))
    with start(tmp_path) as writer:
        fill(writer, faulty=(MISS,))
        arms = {
            "clean": {"status": "ok", "means": {"MRR@5": 0.75}},
            "faulty": {"status": "ok", "means": {"MRR@5": None}},
            "faulty+fix": {"status": "ok", "means": {"MRR@5": 0.5}},
        }
        b = RunReader(writer.finish({"arms": arms, "order": list(arms)}, []))
    found = compare(a, b)
    assert not found.same_digest
    assert found.changes[0] == Change("clean", "MRR@5", 1.0, 0.75, -0.25)
    assert math.isnan(found.changes[1].b) and math.isnan(found.changes[1].delta)
    assert (found.only_a, found.only_b) == ((), ("faulty+fix",))


def test_equal_digests_are_seen(tmp_path: Path) -> None:
    assert compare(RunReader(record(tmp_path)), RunReader(record(tmp_path))).same_digest


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 43}, "seed: 42 against 43"),
        ({"level": 0.3}, "level"),
        ({"scenario": "version-skew"}, "scenario"),
        ({"scenario_digest": "x"}, "scenario_digest"),
        ({"variant": "x"}, "variant"),
        ({"data": {"name": "ledger", "digest": "x"}}, "data.digest"),
        ({"metrics": {"MRR@5": "2"}}, "metrics.MRR@5"),
        ({"metrics": {"MRR@5": "1", "true": "1"}}, "metrics.true"),
        ({"settings": {"stack": "llama-index", "store": "faiss", "queries": 2}}, "settings.stack"),
        ({"settings": {"stack": "reference", "store": "faiss", "queries": 3}}, "settings.queries"),
    ],
)
def test_a_difference_that_can_move_a_number_is_refused_by_name(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    a, b = RunReader(record(tmp_path)), RunReader(record(tmp_path, **changed))
    with pytest.raises(Incomparable) as said:
        compare(a, b)
    assert named in str(said.value)


def test_where_a_run_ran_is_no_difference() -> None:
    moved = {"backend": "compose", "redis_url": "redis://elsewhere", "results_dir": "there"}
    host = {"host": {"cores": 96}, "packages": {"numpy": "9"}, "argv": ["other"], "started": "20300101T000000Z"}
    assert differences(DESCRIBED, {**DESCRIBED, **host, "settings": DESCRIBED["settings"] | moved}) == []


@pytest.mark.parametrize(
    ("axis", "changed"),
    [
        ("stack", {"settings": {"stack": "llama-index", "store": "chroma", "queries": 2}}),
        ("store", {"settings": {"stack": "reference", "store": "chroma", "queries": 2}}),
        ("seed", {"seed": 7}),
        ("level", {"level": 0.1}),
    ],
)
def test_a_difference_on_purpose_is_allowed_by_its_axis_only(axis: str, changed: dict[str, Any]) -> None:
    other = DESCRIBED | changed
    assert differences(DESCRIBED, other, {axis}) == []
    assert differences(DESCRIBED, other) != []
    assert differences(DESCRIBED, other | {"scenario": "x"}, {axis}) != []


def test_the_refusal_names_the_axis_that_would_allow_it(tmp_path: Path) -> None:
    a, b = RunReader(record(tmp_path)), RunReader(record(tmp_path, seed=1))
    with pytest.raises(Incomparable, match="--across seed"):
        compare(a, b)


def test_an_unknown_axis_is_refused() -> None:
    with pytest.raises(InvalidInput, match="across='colour' must be one of"):
        differences(DESCRIBED, DESCRIBED, {"colour"})
