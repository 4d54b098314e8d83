"""``scripts/kv_cases.py``: what is asked for stands in the context, and it is asked for in few enough tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import loaded

BEGIN = 256
kv_cases = loaded("kv_cases")


def encode(text: str) -> list[int]:
    return [BEGIN, *text.encode()]


def decode(ids: list[int]) -> str:
    return bytes(i for i in ids if i != BEGIN).decode()


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return {"needles": kv_cases.needles(encode, 3000, 3), "ledger": kv_cases.ledger(encode, 9000, 1)}


def test_a_code_is_in_its_context_once_at_its_depth_and_all_of_it_is_as_long_as_told(made: dict[str, Any]) -> None:
    for case, depth in zip(made["needles"], (0.1, 0.3, 0.5), strict=True):
        (ask,) = case.asks
        text, code = decode(case.context), decode(ask.answer).strip()
        assert text.count(code) == 1 and code not in decode(ask.question)
        assert abs(text.index(code) / len(text) - depth) < 0.05
        assert case.context[0] == BEGIN and len(case.context) + len(ask.question) == 3000


def test_an_answer_of_the_ledger_follows_the_words_that_ask_for_it_in_the_context(made: dict[str, Any]) -> None:
    for case in made["ledger"]:
        assert len(case.asks) == 8 and len({tuple(a.question) for a in case.asks}) == 8
        assert 8000 < len(case.context) <= 9000
        for ask in case.asks:
            start = decode(ask.question).split("Answer: ")[1]
            assert decode(case.context).count(start + decode(ask.answer)) == 1


def test_the_file_holds_the_same_tokens(made: dict[str, Any], tmp_path: Path) -> None:
    kv_cases.write(tmp_path / "cases.json", made)
    read = json.loads((tmp_path / "cases.json").read_text())
    assert read["needles"][0]["context"] == made["needles"][0].context
    assert [a["answer"] for a in read["ledger"][0]["asks"]] == [a.answer for a in made["ledger"][0].asks]
