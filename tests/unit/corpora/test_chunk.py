from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.core.errors import InvalidInput
from testbed.corpora.chunk import Section, chunks, sections

TEXTS = st.text(alphabet=st.sampled_from("ab .!?\n\t"), max_size=200)


def test_pieces_are_cut_between_sentences() -> None:
    assert chunks("One two. Three four five. Six.", 4) == ["One two.", "Three four five. Six."]
    assert chunks("One two. Three.", 3) == ["One two. Three."]


def test_a_sentence_that_is_too_long_is_cut_between_words() -> None:
    assert chunks("a b c d e. f.", 2) == ["a b", "c d", "e. f."]


def test_blanks_give_no_piece() -> None:
    assert chunks(" \n\n ", 5) == []
    assert chunks("", 5) == []


@pytest.mark.parametrize("n", [0, -3])
def test_a_limit_below_one_is_refused(n: int) -> None:
    with pytest.raises(InvalidInput, match=f"max_words={n} must be >= 1"):
        chunks("a", n)


@given(TEXTS, st.integers(1, 8))
def test_no_word_is_lost_and_no_piece_is_too_long(text: str, limit: int) -> None:
    pieces = chunks(text, limit)
    assert [w for piece in pieces for w in piece.split()] == text.split()
    assert all(1 <= len(piece.split()) <= limit for piece in pieces)


def test_a_page_is_cut_at_its_headings() -> None:
    page = "# Go\n\nIntro.\n\n## Policy ##\n\n## Releases\n- 1.2\n- 1.3\n"
    assert sections(page) == [Section("Go", "Intro."), Section("Releases", "- 1.2\n- 1.3")]
    assert sections("No heading.") == [Section("", "No heading.")]
    assert sections("") == []
