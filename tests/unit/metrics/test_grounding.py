from __future__ import annotations

from math import isnan

import pytest

from testbed.metrics.grounding import answer_containment, lexical_grounding


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ("The newest line is 8.", "8"),
        ("Released on 2021-12-31, the last day.", "2021-12-31"),
        ("Run `cat /etc/redhat-release` to see it", "cat /etc/redhat-release"),
        ("It costs 1,200 EUR.", "1,200"),
        ("NORTH   Dakota", "north dakota"),
        ("\uff21\uff22\uff23\uff11\uff12", "abc12"),
        ("see (3.1).", "3.1"),
        ("最新版本是八", "版本"),
    ],
)
def test_an_accepted_string_is_found(text: str, alias: str) -> None:
    assert answer_containment(text, ["something else", alias]) == 1.0


@pytest.mark.parametrize(
    ("text", "alias"),
    [
        ("It takes 130 ms", "30"),
        ("It takes 30.5 ms", "30"),
        ("It takes 2.30 ms", "30"),
        ("Version 3.1.2", "3.1"),
        ("Version 13.1", "3.1"),
        ("It costs 1,200 EUR", "200"),
        ("-5 degrees", "5"),
        ("2021-12-31", "12"),
        ("catalogue", "cat"),
        ("a scatter", "cat"),
        ("", "x"),
    ],
)
def test_part_of_a_number_or_word_is_not_found(text: str, alias: str) -> None:
    assert answer_containment(text, [alias]) == 0.0


@pytest.mark.parametrize("accept", [[], [""], ["  "]])
def test_without_an_accepted_string_an_answer_is_unscored(accept: list[str]) -> None:
    assert isnan(answer_containment("anything", accept))


def test_lexical_grounding_by_hand() -> None:
    # Content: gateway, timeout, 30, s. Served: gateway and 30.
    assert lexical_grounding("The gateway timeout is 30 s", ["Gateway settings", "value 30"]) == 0.5


def test_a_number_is_grounded_as_a_whole_only() -> None:
    assert lexical_grounding("30", ["30.5", "130"]) == 0.0
    assert lexical_grounding("30", ["it is 30."]) == 1.0


def test_a_stale_passage_grounds_a_stale_answer() -> None:
    assert lexical_grounding("The timeout is 30 ms", ["The timeout is 30 ms since spring"]) == 1.0


def test_an_answer_of_no_content_is_unscored() -> None:
    assert isnan(lexical_grounding("It is the", ["the"]))
