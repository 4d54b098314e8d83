from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from testbed.core import digest
from testbed.core.names import ValueNames
from testbed.core.ports import Role, Vectors
from testbed.models.memo import Memo, MemoEncoder, default_dir


class Counting:
    """An encoder that counts what it is asked; the vector tells the text's length and the role."""

    name, tokenizer, dim = "toy", "letters", 2

    def __init__(self, fingerprint: str = "f" * 64) -> None:
        self.fingerprint = fingerprint
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        self.asked += texts
        return np.array([[len(t), role == "query"] for t in texts], dtype=np.float32).reshape(-1, 2)


@pytest.fixture
def memo(tmp_path: Path) -> Iterator[Memo]:
    opened = Memo(tmp_path / "cache")
    yield opened
    opened.close()


def test_a_text_is_encoded_once_in_a_process_and_never_by_the_next(memo: Memo) -> None:
    first = Counting()
    encoder = MemoEncoder(first, memo, ValueNames())
    assert encoder.encode(["one", "three", "one"], "query").tolist() == [[3, 1], [5, 1], [3, 1]]
    encoder.encode(["three", "seven"], "query")
    assert first.asked == ["one", "three", "seven"]
    second = Counting()
    assert MemoEncoder(second, memo, ValueNames()).encode(["seven", "one"], "query").tolist() == [[5, 1], [3, 1]]
    assert second.asked == []


def test_role_text_and_fingerprint_are_all_part_of_the_key(memo: Memo) -> None:
    MemoEncoder(Counting("a" * 64), memo, ValueNames()).encode(["one"], "query")
    for fingerprint, text, role in (
        ("b" * 64, "one", "query"),
        ("a" * 64, "one", "document"),
        ("a" * 64, "o", "query"),
    ):
        other = Counting(fingerprint)
        MemoEncoder(other, memo, ValueNames()).encode([text], role)  # type: ignore[arg-type]
        assert other.asked == [text]


def test_every_vector_handed_out_has_a_name(memo: Memo) -> None:
    for _ in range(2):  # freshly encoded, then from disk
        names = ValueNames()
        vector = MemoEncoder(Counting(), memo, names).encode(["one"], "query")[0]
        assert names.of(vector) == f"vector:{'f' * 12}:{digest.of_text('one')}"


def test_changing_a_result_changes_nothing(memo: Memo) -> None:
    encoder = MemoEncoder(Counting(), memo, ValueNames())
    encoder.encode(["one"], "query")[:] = -1.0
    assert encoder.encode(["one"], "query").tolist() == [[3, 1]]


def test_progress_counts_only_what_is_really_encoded(memo: Memo) -> None:
    MemoEncoder(Counting(), memo, ValueNames()).encode(["a"], "document")
    seen: list[tuple[int, int]] = []
    encoder = MemoEncoder(Counting(), memo, ValueNames(), lambda done, total: seen.append((done, total)))
    encoder.encode(["a", *(f"text {i}" for i in range(70))], "document")
    assert seen == [(64, 70), (70, 70)]


def test_more_texts_than_one_statement_takes_are_all_found(memo: Memo) -> None:
    texts = [f"text {i}" for i in range(1201)]
    MemoEncoder(Counting(), memo, ValueNames()).encode(texts, "document")
    second = Counting()
    MemoEncoder(second, memo, ValueNames()).encode(texts, "document")
    assert second.asked == []


def test_a_damaged_row_is_encoded_again_and_repaired(memo: Memo) -> None:
    MemoEncoder(Counting(), memo, ValueNames()).encode(["one", "three"], "query")
    db = sqlite3.connect(memo.path)
    with db:
        db.execute("UPDATE vectors SET vector = ?", (np.zeros(2, "<f4").tobytes(),))
    db.close()
    again = Counting()
    assert MemoEncoder(again, memo, ValueNames()).encode(["one", "three"], "query").tolist() == [[3, 1], [5, 1]]
    assert again.asked == ["one", "three"]
    third = Counting()
    MemoEncoder(third, memo, ValueNames()).encode(["one", "three"], "query")
    assert third.asked == []


@pytest.mark.parametrize("n_bytes", [3000, 20000])
def test_a_file_that_is_no_database_is_set_aside_with_one_line(
    tmp_path: Path, n_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Memo(tmp_path)
    broken.path.write_bytes(b"not a database " * (n_bytes // 15))
    encoder = MemoEncoder(Counting(), broken, ValueNames())
    with caplog.at_level(logging.WARNING):
        assert encoder.encode(["one"], "query").tolist() == [[3, 1]]
    broken.close()
    assert [r.getMessage().split(" is ")[1] for r in caplog.records] == [
        "damaged; set aside as embeddings.sqlite3.broken-1 and made anew"
    ]
    assert (tmp_path / "embeddings.sqlite3.broken-1").read_bytes().startswith(b"not a database")
    again, second = Memo(tmp_path), Counting()
    MemoEncoder(second, again, ValueNames()).encode(["one"], "query")
    again.close()
    assert second.asked == []


def test_pages_damaged_in_the_middle_lose_entries_but_never_give_wrong_ones(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(400)]
    memo = Memo(tmp_path)
    expected = MemoEncoder(Counting(), memo, ValueNames()).encode(texts, "document").tolist()
    memo.close()
    raw = bytearray(memo.path.read_bytes())
    for at in range(5000, len(raw), 4096):
        raw[at : at + 300] = b"\xff" * 300
    memo.path.write_bytes(raw)
    damaged = Memo(tmp_path)
    assert MemoEncoder(Counting(), damaged, ValueNames()).encode(texts, "document").tolist() == expected
    damaged.close()


def test_a_folder_that_cannot_be_made_costs_speed_not_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        encoder = MemoEncoder(Counting(), Memo(tmp_path / "file" / "cache"), ValueNames())
        assert encoder.encode(["one"], "query").tolist() == [[3, 1]]
        encoder.encode(["three"], "query")
    assert len([r for r in caplog.records if "cannot be used" in r.getMessage()]) == 1


def test_a_file_digest_is_that_of_its_bytes_also_after_a_change(memo: Memo, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    for content in (b"old", b"newer"):
        file.write_bytes(content)
        for _ in range(2):
            assert memo.file_digest(file) == digest.of_bytes(content)


def test_a_remembered_file_digest_is_not_computed_again(memo: Memo, tmp_path: Path) -> None:
    file = tmp_path / "weights"
    file.write_bytes(b"old")
    os.utime(file, ns=(1, 1))
    memo.file_digest(file)
    file.write_bytes(b"new")  # same size; with the same time it passes for unchanged
    os.utime(file, ns=(1, 1))
    assert memo.file_digest(file) == digest.of_bytes(b"old")


WRITER = """
import sys
from pathlib import Path
import numpy as np
from testbed.models.memo import Memo
memo = Memo(Path(sys.argv[1]))
print("ready", flush=True)
for i in range(int(sys.argv[3])):
    memo.keep({bytes([int(sys.argv[2])]) + i.to_bytes(31, "big"): np.full(384, i, dtype=np.float32)})
memo.close()
"""


def _writer(folder: Path, number: int, n_rows: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(folder), str(number), str(n_rows)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])


def test_processes_write_at_the_same_time_and_one_that_is_killed_harms_nobody(tmp_path: Path) -> None:
    n_rows = 60
    victim, *others = [_writer(tmp_path, 0, 10**6), _writer(tmp_path, 1, n_rows), _writer(tmp_path, 2, n_rows)]
    assert victim.stdout is not None
    victim.stdout.readline()
    for process in others:
        process.communicate()
        assert process.returncode == 0
    victim.kill()
    victim.communicate()
    memo = Memo(tmp_path)
    keys = [bytes([number]) + i.to_bytes(31, "big") for number in (0, 1, 2) for i in range(n_rows)]
    found = memo.find(keys)
    memo.close()
    assert {k for k in keys if k[0] in (1, 2)} <= set(found)
    assert all((vector == int.from_bytes(key[1:], "big")).all() for key, vector in found.items())


def test_a_new_file_that_another_process_is_setting_up_is_waited_for(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "embeddings.sqlite3", check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # for this lock SQLite does not wait when the journal's mode is changed
    other.execute("SELECT * FROM sqlite_master").fetchall()
    threading.Timer(0.2, other.rollback).start()
    memo = Memo(tmp_path)
    memo.keep({b"k" * 32: np.ones(4, np.float32)})
    assert list(memo.find([b"k" * 32])) == [b"k" * 32]
    other.close()
    memo.close()


def test_the_folder_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_CACHE_DIR", "/own")
    assert default_dir() == Path("/own")
    monkeypatch.delenv("TESTBED_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_dir() == Path("/xdg/rag-testbed")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_dir() == Path("/home/someone/.cache/rag-testbed")
