from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.errors import BrokenContract, InvalidInput, Unavailable
from testbed.core.types import Event
from testbed.record import folder
from testbed.record.folder import ArmWriter, RunReader, Timing, slug
from testbed.record.runs import find, runs
from tests.unit.record.recorded import ANSWER, DOC, GOLD, MISS, OPS, QUESTION, SUMMARY, crash, fill, record, start


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    reader = RunReader(record(tmp_path))
    evidence = reader.evidence("faulty")
    assert evidence.arm == "faulty"
    assert evidence.ops == OPS
    assert evidence.events == (MISS, Event(**{**_fields(ANSWER), "data": {"ranking": ["d1", "d 2"], "sources": []}}))
    assert evidence.docs == {("d1", 1): DOC}
    assert evidence.gold == {1: GOLD}
    assert set(evidence.texts.values()) == {QUESTION, "the timeout is 30 ms", "30 ms"}
    assert (evidence.canaries, evidence.lexicon) == ({"a": "zq"}, None)
    assert reader.timings("clean") == [Timing(1, "answer", "miss", 1200)]
    assert reader.summary == SUMMARY
    reader.verify()


def test_folder_is_named_by_time_seed_and_digest(tmp_path: Path) -> None:
    whole = record(tmp_path)
    digest = RunReader(whole).digest
    assert whole == tmp_path / "tenant-leak" / f"20260102T030405Z-s42-{digest[:8]}"
    assert (tmp_path / "tenant-leak" / "latest").resolve() == whole.resolve()


def test_each_text_is_written_once(tmp_path: Path) -> None:
    whole = record(tmp_path)
    assert len((whole / "texts.jsonl").read_text().splitlines()) == 2
    assert (whole / "arms/clean/texts.jsonl").read_text() == '{"digest":"abcd","text":"30 ms"}\n'


def test_digest_depends_on_events_and_not_on_the_clock_or_the_arms_name(tmp_path: Path) -> None:
    first = RunReader(record(tmp_path)).manifest
    later = RunReader(record(tmp_path, started="20270101T000000Z")).manifest
    other = RunReader(record(tmp_path, faulty=(MISS,))).manifest
    assert first["digest"] == later["digest"]
    assert first["arm_digests"]["clean"] == first["arm_digests"]["faulty"]
    assert other["arm_digests"]["clean"] == first["arm_digests"]["clean"]
    assert other["digest"] != first["digest"]


@pytest.mark.parametrize("changed", [{"seed": 43}, {"level": 0.3}, {"variant": "x"}, {"data": {"digest": "b"}}])
def test_digest_depends_on_what_was_asked(tmp_path: Path, changed: dict[str, Any]) -> None:
    assert RunReader(record(tmp_path, **changed)).digest != RunReader(record(tmp_path)).digest


def test_two_runs_of_the_same_second_do_not_share_a_folder(tmp_path: Path) -> None:
    first, second = record(tmp_path), record(tmp_path)
    assert second.name == f"{first.name}-2"
    RunReader(first).verify()
    RunReader(second).verify()


def test_two_runs_at_once_do_not_share_a_folder(tmp_path: Path) -> None:
    with start(tmp_path) as first, start(tmp_path) as second:
        assert first.folder != second.folder
        for writer in (first, second):
            fill(writer)
            RunReader(writer.finish(SUMMARY, [])).verify()


def test_unscored_stays_unscored(tmp_path: Path) -> None:
    with start(tmp_path) as writer:
        fill(writer)
        scores = [{"arm": "clean", "op": 1, "query": "q", "tenant": "a", "MRR@5": math.nan, "true": None}]
        reader = RunReader(writer.finish({"arms": {"clean": {"mean": math.nan, "of": (math.nan, 1.0)}}}, scores))
    assert reader.summary == {"arms": {"clean": {"mean": None, "of": [None, 1.0]}}}
    (row,) = reader.scores()
    assert math.isnan(row["MRR@5"]) and math.isnan(row["true"])


def test_trec_files_name_asks_and_hold_no_spaces_in_ids(tmp_path: Path) -> None:
    whole = record(tmp_path)
    assert (whole / "arms/clean/run.trec").read_text() == "op1 Q0 d1 1 2 rag-testbed\nop1 Q0 d%202 2 1 rag-testbed\n"
    assert (whole / "qrels.trec").read_text() == "op1 0 d1 1\n"


def test_arms_have_distinct_plain_folder_names() -> None:
    assert slug("clean") == "clean"
    assert slug("faulty+typed-key") == "faulty+typed-key"
    assert slug("faulty-without:answer") == "faulty-without=answer"
    names = ["a:b", "a=b", "a/b", "a b", "a_b", "ä"]
    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert all("/" not in s and ":" not in s and s.isascii() for s in slugs)


def test_an_arm_is_recorded_once(tmp_path: Path) -> None:
    with pytest.raises(BrokenContract, match="arm='clean' was recorded twice"), start(tmp_path) as writer:
        fill(writer)
        ArmWriter(writer.folder, "clean", frozenset())
    with pytest.raises(BrokenContract, match="arm='clean' was recorded twice"), start(tmp_path) as writer:
        fill(writer)
        writer.recorded("clean", "00")


# -- half runs, and runs that were tampered with -----------------------------------------------------------------------


def test_half_a_run_is_not_read_as_whole(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="half a run"):
        RunReader(crash(tmp_path))
    assert [row.status for row in runs(tmp_path)] == ["half (started)"]
    with pytest.raises(InvalidInput, match="names no whole run"):
        find(tmp_path, "tenant-leak")


def test_a_half_run_renamed_by_hand_is_not_read_as_whole(tmp_path: Path) -> None:
    renamed = crash(tmp_path).rename(tmp_path / "tenant-leak" / "20260102T030405Z-s42-deadbeef")
    with pytest.raises(InvalidInput, match="status='started'"):
        RunReader(renamed)


@pytest.mark.parametrize(
    "name",
    [
        "ops.jsonl",
        "gold.jsonl",
        "texts.jsonl",
        "ledger.json",
        "arms/faulty/trace.jsonl",
        "arms/faulty/texts.jsonl",
        "docs.jsonl",
    ],
)
@pytest.mark.parametrize("damage", ["cut", "gone", "other"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    whole = record(tmp_path)
    path = whole / name
    if damage == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-3] if damage == "cut" else b" " + data)
    with pytest.raises(InvalidInput) as said:
        RunReader(whole).evidence("faulty")
    assert str(path) in str(said.value)
    with pytest.raises(InvalidInput):
        RunReader(whole).verify()


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    whole = record(tmp_path)
    (whole / "manifest.json").write_text('{"status": "fini')
    with pytest.raises(InvalidInput, match=r"manifest\.json: not JSON"):
        RunReader(whole)


def test_a_forged_digest_is_seen(tmp_path: Path) -> None:
    whole = record(tmp_path)
    found = json.loads((whole / "manifest.json").read_text())
    (whole / "manifest.json").write_text(json.dumps(found | {"digest": "0" * 64}))
    with pytest.raises(InvalidInput, match="digest=00000000 should be"):
        RunReader(whole).verify()


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    whole = record(tmp_path)
    found = json.loads((whole / "manifest.json").read_text())
    (whole / "manifest.json").write_text(json.dumps(found | {"format": 2}))
    with pytest.raises(InvalidInput, match="format=2"):
        RunReader(whole)


def test_a_row_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    with start(tmp_path) as writer:
        fill(writer)
        reader = RunReader(writer.folder, unfinished=True)
    with (writer.folder / "arms/clean/trace.jsonl").open("a") as trace:
        trace.write('{"op": 1, "surprise": 2}\n')
    with pytest.raises(InvalidInput, match=r"trace\.jsonl:3: not a row"):
        reader.evidence("clean")


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_failed_run_keeps_its_log_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), start(tmp_path) as writer:
        fill(writer)
        _ = 1 // 0
    assert "ZeroDivisionError" in (writer.folder / "log.txt").read_text()
    assert [row.status for row in runs(tmp_path)] == ["half (failed)"]


def test_an_interrupted_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), start(tmp_path):
        raise KeyboardInterrupt
    assert [row.status for row in runs(tmp_path)] == ["half (interrupted)"]


def test_results_below_a_file_are_unavailable_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match=r"cannot write .*set RESULTS_DIR to a writable folder"):
        start(tmp_path / "file" / "results")


def test_results_that_are_a_file_are_unavailable_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tenant-leak").write_text("")
    with pytest.raises(Unavailable, match="cannot write"):
        start(tmp_path)


def test_a_full_disk_is_one_line_and_leaves_no_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(Unavailable, match=r"trace\.jsonl: No space left on device.*free some space"),
        start(tmp_path) as w,
    ):
        fill(w)
        with ArmWriter(w.folder, "third", frozenset()) as arm:
            monkeypatch.setattr(arm._trace, "_file", _Full(arm._trace._file))
            arm.event(MISS)
    assert [row.status for row in runs(tmp_path)] == ["half (failed)"]


def test_a_disk_that_fills_at_the_end_leaves_no_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(Unavailable, match="No space left"), start(tmp_path) as writer:
        fill(writer)
        monkeypatch.setattr(os, "fsync", full)
        writer.finish(SUMMARY, [])
    monkeypatch.undo()
    assert [row.status for row in runs(tmp_path)] == ["half (started)"]


class _Full:
    """A file on a full disk."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.closed = False

    def close(self) -> None:
        self._file.close()

    def write(self, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


TEXT = st.text(max_size=20)


@given(
    op=st.integers(0, 10**6),
    at_s=st.floats(0, 1e6, allow_nan=False),
    key=st.dictionaries(TEXT, TEXT, max_size=4),
    value=TEXT,
    data=st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.booleans(), st.lists(TEXT, max_size=3)), max_size=3),
)
def test_any_event_survives_a_round_trip(
    op: int, at_s: float, key: dict[str, str], value: str, data: dict[str, Any]
) -> None:
    event = Event(op, at_s, "answer", "hit", key, value, data)
    line = folder.rows.line(folder.rows.of_event(event))
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert folder.rows.to_event(folder.rows.parsed(line)) == event
    assert json.loads(line.decode("utf-8", "surrogatepass")) == folder.rows.of_event(event)


def test_lone_surrogates_survive(tmp_path: Path) -> None:
    with start(tmp_path) as writer:
        fill(writer)
        with ArmWriter(writer.folder, "odd", frozenset()) as arm:
            arm.text("ffff", "half an emoji \ud83d")
        writer.recorded("odd", arm.digest)
        reader = RunReader(writer.finish(SUMMARY, []))
    assert reader.evidence("odd").texts["ffff"] == "half an emoji \ud83d"


def _fields(event: Event) -> dict[str, Any]:
    return {name: getattr(event, name) for name in ("op", "at_s", "layer", "kind", "key", "value", "data")}
