from __future__ import annotations

from typing import Any

import pytest

from testbed.core.errors import InvalidInput
from testbed.run.settings import Settings, level_of, seed_of


@pytest.mark.parametrize(("word", "level"), [("low", 0.1), ("medium", 0.3), ("high", 1.0), ("0", 0.0), ("0.25", 0.25)])
def test_a_level_is_a_word_or_a_number(word: str, level: float) -> None:
    assert level_of(word) == level


@pytest.mark.parametrize("word", ["7", "-0.1", "nan", "inf", "much", ""])
def test_another_level_is_refused_and_the_allowed_ones_are_named(word: str) -> None:
    with pytest.raises(
        InvalidInput, match=f"POLLUTION_LEVEL={word} must be low, medium, high, or a number from 0 to 1"
    ):
        level_of(word)


@pytest.mark.parametrize("word", ["x", "-1", "1.5", "", "٣"])
def test_a_seed_is_a_whole_number(word: str) -> None:
    with pytest.raises(InvalidInput, match="must be an integer >= 0"):
        seed_of(word)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seed": -1}, "SEED=-1"),
        ({"level": 7.0}, "POLLUTION_LEVEL=7"),
        ({"level": float("nan")}, "POLLUTION_LEVEL=nan"),
        ({"queries": 0}, "QUERIES=0 must be from"),
        ({"store": "fais"}, "did you mean 'faiss'"),
        ({"stack": "llama-indx"}, "did you mean 'llama-index'"),
        ({"backend": "kubernetes"}, "unknown BACKEND 'kubernetes'"),
    ],
)
def test_a_wrong_knob_says_what_is_allowed(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said.replace("(", r"\(")):
        Settings("tenant-leak", **changed)


def test_a_stack_of_ones_own_is_a_module_and_a_function() -> None:
    assert Settings("tenant-leak", stack="my.stack:build").stack == "my.stack:build"
