from __future__ import annotations

import pytest

from testbed.core.ports import Passage
from testbed.models.reader import ABSTENTION, ExtractiveReader

TIMEOUT = Passage(
    "timeout", 1, "Ask the desk first. The request timeout of Heron is 30. It was agreed in May.", ("units",)
)
QUOTA = Passage("quota", 1, "Heron is old. The disk quota of Heron is 500 gigabytes.")
UNITS = Passage("units", 1, "This page is short. Every request timeout is given in ms. Every fee is given in euros.")


def read(question: str, passages: list[Passage], linked: dict[str, Passage] | None = None) -> str:
    return ExtractiveReader().read(question, passages, linked or {}).text


def test_it_repeats_the_sentence_that_covers_the_question_from_whatever_rank() -> None:
    assert read("What is the disk quota of Heron?", [TIMEOUT, QUOTA]) == "The disk quota of Heron is 500 gigabytes."


def test_the_sentence_that_explains_the_entry_is_appended_when_its_page_is_at_hand() -> None:
    question = "Which request timeout is set for Heron?"
    assert read(question, [TIMEOUT], {"units": UNITS}) == (
        "The request timeout of Heron is 30. Every request timeout is given in ms."
    )
    assert read(question, [TIMEOUT], {}) == "The request timeout of Heron is 30."


def test_pages_that_the_chosen_passage_does_not_refer_to_are_not_appended() -> None:
    assert read("What is the disk quota of Heron?", [QUOTA], {"units": UNITS}) == (
        "The disk quota of Heron is 500 gigabytes."
    )


def test_between_sentences_that_cover_the_same_the_better_ranked_passage_wins() -> None:
    a, b = Passage("a", 1, "The fee is 3 euros."), Passage("b", 1, "The fee is 4 euros.")
    assert read("What is the fee?", [a, b]) == "The fee is 3 euros."
    assert read("What is the fee?", [b, a]) == "The fee is 4 euros."


def test_singular_and_plural_are_one_word() -> None:
    text = Passage("a", 1, "We like tea. Logs are kept for 9 days.")
    assert read("How long is a log kept?", [text]) == "Logs are kept for 9 days."


@pytest.mark.parametrize("question", ["Who painted the ceiling of the chapel?", "", "What is it?"])
def test_it_says_so_when_no_sentence_covers_enough_of_the_question(question: str) -> None:
    answer = ExtractiveReader().read(question, [QUOTA, TIMEOUT], {})
    assert (answer.text, answer.abstained, answer.ranking) == (ABSTENTION, True, ("quota", "timeout"))


def test_without_passages_it_abstains() -> None:
    answer = ExtractiveReader().read("What is the fee?", [], {})
    assert (answer.abstained, answer.ranking) == (True, ())


def test_the_ranking_is_handed_on_and_a_found_answer_is_no_abstention() -> None:
    answer = ExtractiveReader().read("What is the disk quota?", [TIMEOUT, QUOTA], {})
    assert (answer.ranking, answer.abstained) == (("timeout", "quota"), False)


def test_lines_end_sentences_and_abbreviations_with_small_letters_do_not() -> None:
    text = Passage("a", 1, "# Heading without end\nThe port, e.g. in tests, is 7411 and not 80. The end.")
    assert read("What is the port?", [text]) == "The port, e.g. in tests, is 7411 and not 80."
