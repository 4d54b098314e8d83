from __future__ import annotations

from pathlib import Path

from testbed.record.asks import Asked, Served, asked, served
from testbed.record.folder import RunReader
from tests.unit.record.recorded import QUESTION, record


def test_an_ask_has_its_question_and_what_is_right(tmp_path: Path) -> None:
    reader = RunReader(record(tmp_path))
    assert asked(reader, {0, 1, 99}) == {1: Asked(1, "a", QUESTION, ("30 ms",))}
    assert asked(reader, set()) == {}


def test_what_was_served_comes_from_the_arm(tmp_path: Path) -> None:
    reader = RunReader(record(tmp_path))
    assert served(reader, "faulty", {1}) == {1: Served("30 ms", "none", False)}
    assert served(reader, "faulty", {2}) == {}


def test_scores_can_be_read_of_some_arms(tmp_path: Path) -> None:
    reader = RunReader(record(tmp_path))
    assert [row["arm"] for row in reader.scores("faulty")] == ["faulty"]
    assert [row["arm"] for row in reader.scores()] == ["clean", "faulty"]
