from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InvalidInput
from testbed.record import shrunk
from testbed.record.folder import RunReader
from tests.unit.record.recorded import SHRUNK
from tests.unit.report.pages_of import record


def test_what_is_kept_comes_back_by_the_number_of_the_violation(tmp_path: Path) -> None:
    reader = RunReader(record(tmp_path))
    assert shrunk.kept(reader) == []
    for number in (10, 2, 1):
        shrunk.keep(reader, SHRUNK | {"violation": number})
    shrunk.keep(reader, SHRUNK | {"violation": 2, "replays": 99})
    found = shrunk.kept(reader)
    assert [(f["violation"], f["replays"]) for f in found] == [(1, 5), (2, 99), (10, 5)]
    assert {name: found[0][name] for name in SHRUNK} == SHRUNK


def test_keeping_it_is_no_part_of_the_run(tmp_path: Path) -> None:
    folder = record(tmp_path)
    before = RunReader(folder).digest
    shrunk.keep(RunReader(folder), SHRUNK)
    after = RunReader(folder)
    after.verify()
    assert after.digest == before


def test_what_another_run_left_is_refused(tmp_path: Path) -> None:
    mine, other = record(tmp_path / "a"), record(tmp_path / "b", seed=43)
    path = shrunk.keep(RunReader(other), SHRUNK)
    (mine / "shrunk").mkdir()
    (mine / "shrunk" / "1.json").write_bytes(path.read_bytes())
    with pytest.raises(InvalidInput, match=r"1\.json: not of this run .*testbed shrink"):
        shrunk.kept(RunReader(mine))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"story": "op 1"}, "story"),
        ({"story": []}, "story"),
        ({"story": [{"a": 1}]}, "lines of text"),
        ({"ops": None}, "ops"),
        ({"violation": 3}, "violation"),
        (None, "not JSON"),
    ],
)
def test_an_edited_file_is_told_and_not_shown(tmp_path: Path, changed: dict[str, Any] | None, said: str) -> None:
    reader = RunReader(record(tmp_path))
    path = shrunk.keep(reader, SHRUNK)
    path.write_text("{" if changed is None else json.dumps(SHRUNK | {"digest": reader.digest} | changed))
    with pytest.raises(InvalidInput, match=f"1.json: .*{said}"):
        shrunk.kept(reader)


def test_other_files_beside_them_are_left_alone(tmp_path: Path) -> None:
    reader = RunReader(record(tmp_path))
    shrunk.keep(reader, SHRUNK)
    (reader.folder / "shrunk" / "1.json.tmp").write_text("{")
    (reader.folder / "shrunk" / "notes.json").write_text("{")
    assert len(shrunk.kept(reader)) == 1
