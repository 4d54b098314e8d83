"""What a user can get wrong, or find broken: one clear line, the right exit code, nothing lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from testbed.run import services
from tests.e2e.command import Ran, call
from tests.e2e.conftest import Play

pytestmark = pytest.mark.e2e


def fails(ran: Ran, code: int, *says: str) -> None:
    """Exit code, nothing on standard output, one line of the error apart from progress."""
    lines = [line for line in ran.err.splitlines() if not line.endswith(" ...")]
    assert (ran.code, ran.out) == (code, ""), ran
    assert len(lines) == 1, ran.err
    for part in says:
        assert part in lines[0]


def beir(folder: Path) -> Path:
    """The smallest data set of the BEIR layout."""
    (folder / "qrels").mkdir(parents=True)
    docs = [{"_id": f"d{i}", "title": "", "text": f"The code of door {i} is {100 + i}."} for i in range(12)]
    queries = [{"_id": f"q{i}", "text": f"What is the code of door {i}?"} for i in range(12)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in docs))
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    qrels = "".join(f"q{i}\td{i}\t1\n" for i in range(12))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return folder


def test_an_unknown_scenario_is_named_with_the_nearest(home: Path) -> None:
    fails(call(home, "run", "tenant-lek"), 2, "unknown scenario 'tenant-lek'; did you mean 'tenant-leak'?")


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"SEED": "x"}, "SEED=x must be an integer >= 0"),
        ({"POLLUTION_LEVEL": "7"}, "POLLUTION_LEVEL=7 must be low, medium, high, or a number from 0 to 1"),
    ],
)
def test_a_wrong_knob_says_what_is_allowed(home: Path, knobs: dict[str, str], says: str) -> None:
    fails(call(home, "run", "tenant-leak", **knobs), 2, says)


def test_a_malformed_row_is_named_with_file_and_line(home: Path, tmp_path: Path) -> None:
    folder = beir(tmp_path / "set")
    with (folder / "corpus.jsonl").open("a") as corpus:
        corpus.write('{"_id": "d12", "text": \n')
    fails(call(home, "run", "tenant-leak", DATASET=str(folder), QUERIES="20"), 2, "corpus.jsonl:13")


def test_missing_qrels_are_named(home: Path, tmp_path: Path) -> None:
    folder = beir(tmp_path / "set")
    (folder / "qrels" / "test.tsv").unlink()
    fails(call(home, "run", "tenant-leak", DATASET=str(folder), QUERIES="20"), 2, "qrels")


def test_a_missing_folder_is_named(home: Path, tmp_path: Path) -> None:
    fails(call(home, "run", "tenant-leak", DATASET=str(tmp_path / "nothing")), 2, "nothing")


def test_an_unreachable_server_is_named(home: Path) -> None:
    ran = call(home, "run", "tenant-leak", REDIS_URL="redis://user:secret@127.0.0.1:1/0")
    fails(ran, 3, "redis is not reachable at 127.0.0.1:1")
    assert "secret" not in ran.err


def test_a_results_folder_below_a_file_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    fails(call(home, "run", "tenant-leak", RESULTS_DIR=str(tmp_path / "file" / "x")), 3, "cannot write", "RESULTS_DIR")
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc: a folder in which even root cannot write")
def test_a_read_only_results_folder_is_refused(home: Path) -> None:
    fails(call(home, "run", "tenant-leak", RESULTS_DIR="/proc/self"), 3, "cannot write", "RESULTS_DIR")


def test_a_given_server_is_used_and_left_as_it_was(played: Play, home: Path, tmp_path: Path) -> None:
    with services.private_redis() as service:
        service.client.set("somebody-elses", "precious")
        url = f"unix://{service.where}" if service.where.startswith("/") else f"redis://{service.where}"
        ran = call(home, "run", "tenant-leak", "--json", REDIS_URL=url, QUERIES="60", RESULTS_DIR=str(tmp_path))
        left = sorted(service.client.keys("*"))
    assert ran.code == 0, ran.err
    assert left == [b"somebody-elses"]
    assert json.loads(ran.out)["digest"] == played("tenant-leak").digest


def test_plain_lines_and_no_colours_outside_of_a_terminal(home: Path) -> None:
    ran = call(home, "run", "tenant-leak", QUERIES="20")
    assert ran.code == 0, ran.err
    assert "\x1b" not in ran.out + ran.err
    assert "clean ..." in ran.err.splitlines()
    assert max(map(len, ran.out.splitlines())) <= 100 or "results" in ran.out
