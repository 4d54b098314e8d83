"""A snapshot is read back as it was written, or not at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.errors import BrokenContract
from testbed.core.ports import Row
from testbed.stores import snapshot
from testbed.stores.snapshot import Snapshot


def row(name: str = "d1", version: int = 1, values: tuple[float, ...] = (1.0, 0.0)) -> Row:
    return Row(name, version, "a", np.array(values, dtype=np.float32), "encoder", "text of " + name)


def equal(a: Snapshot, b: Snapshot) -> bool:
    names = [r._replace(vector=None) for r in a.rows] == [r._replace(vector=None) for r in b.rows]
    vectors = all(np.array_equal(x.vector, y.vector) for x, y in zip(a.rows, b.rows, strict=True))
    return names and vectors and a[1:] == b[1:]


TWO = Snapshot((row(), row("d2", 7, (0.6, 0.8))), "17-3", "1.000001")


@given(
    st.lists(st.tuples(st.text(), st.integers(0, 2**40), st.floats(-1, 1, width=32)), max_size=5), st.text(), st.text()
)
def test_what_is_packed_is_unpacked(rows: list[tuple[str, int, float]], cursor: str, incarnation: str) -> None:
    before = Snapshot(tuple(row(name, version, (x, 1 - x)) for name, version, x in rows), cursor, incarnation)
    assert equal(snapshot.unpacked(snapshot.packed(before), "x"), before)


def test_a_snapshot_cut_at_any_byte_is_torn() -> None:
    whole = snapshot.packed(TWO)
    for length in range(len(whole)):
        with pytest.raises(BrokenContract, match="torn"):
            snapshot.unpacked(whole[:length], "x")


def test_a_snapshot_with_any_byte_changed_is_torn() -> None:
    whole = snapshot.packed(TWO)
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(BrokenContract, match="torn"):
            snapshot.unpacked(changed, "x")


class Crash(Exception):
    pass


def crash_at(step: str):
    def at(passed: str) -> None:
        if passed == step:
            raise Crash

    return at


@pytest.mark.parametrize(
    ("step", "survives"), [("snapshot-torn", "old"), ("snapshot-written", "old"), ("snapshot-renamed", "new")]
)
def test_an_atomic_write_leaves_the_old_file_or_the_new(tmp_path: Path, step: str, survives: str) -> None:
    old, new = Snapshot((row(),), "1-0"), TWO
    snapshot.write(tmp_path / "snapshot-1", old)
    with pytest.raises(Crash):
        snapshot.write(tmp_path / "snapshot-1", new, crash_at(step))
    assert equal(snapshot.read(tmp_path / "snapshot-1"), old if survives == "old" else new)


def test_a_write_in_place_leaves_neither(tmp_path: Path) -> None:
    snapshot.write_in_place(tmp_path / "index", Snapshot((row(),)))
    with pytest.raises(Crash):
        snapshot.write_in_place(tmp_path / "index", TWO, crash_at("index-torn"))
    with pytest.raises(BrokenContract, match="torn"):
        snapshot.read(tmp_path / "index")


def test_a_sweep_removes_other_snapshots_and_unfinished_ones_only(tmp_path: Path) -> None:
    for name in ("snapshot-1", "snapshot-2", ".snapshot-3.99", "notes"):
        (tmp_path / name).write_text("x")
    snapshot.sweep(tmp_path, keep=["snapshot-2"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes", "snapshot-2"]
