from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from testbed.models.runner.generate import Piece, Sampling, even_chunks, stream
from testbed.models.runner.tokens import ByteTokenizer, Message, base_chat

pytestmark = pytest.mark.models
BYTES = ByteTokenizer()


def said(text: str | bytes, sampling: Sampling, prompt: str = "hello") -> list[Piece]:
    """The pieces of a model that says exactly these bytes and then ends."""
    raw = text.encode() if isinstance(text, str) else text
    script = [*raw, BYTES.end] + [0] * 64
    at = iter(range(1, len(script)))

    def logits(token: int) -> torch.Tensor:
        return torch.nn.functional.one_hot(torch.tensor(token), BYTES.vocabulary).float() * 50

    return list(stream(logits(script[0]), lambda _: logits(script[next(at)]), BYTES, BYTES.encode(prompt), sampling))


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(p.text for p in pieces)


def test_an_end_token_ends_the_text_and_is_not_part_of_it() -> None:
    pieces = said("yes", Sampling(max_tokens=10))
    assert text_of(pieces) == "yes"
    assert [p.finish for p in pieces][-1] == "stop" and all(not p.finish for p in pieces[:-1])


def test_the_limit_ends_the_text_with_length() -> None:
    pieces = said("abcdef", Sampling(max_tokens=3))
    assert (text_of(pieces), pieces[-1].finish, pieces[-1].n_tokens) == ("abc", "length", 3)


def test_half_a_character_is_held_until_it_is_whole() -> None:
    pieces = said("aé€b", Sampling(max_tokens=20))
    assert text_of(pieces) == "aé€b"
    assert all("\ufffd" not in p.text for p in pieces)


def test_a_character_cut_by_the_limit_is_shown_as_it_is() -> None:
    assert text_of(said("€", Sampling(max_tokens=2))) == "\ufffd"


@given(st.text(min_size=0, max_size=30), st.lists(st.text(min_size=1, max_size=4), max_size=3))
def test_pieces_join_to_the_text_before_the_first_stop_string(text: str, stops: list[str]) -> None:
    """Whatever the stop strings, nothing of one is ever shown, and nothing before it is lost."""
    raw = text.encode()
    pieces = said(text, Sampling(max_tokens=len(raw) + 1, stop=tuple(stops)))
    ends = []
    for n in range(1, len(raw) + 1):  # a stop string counts as soon as it has been said
        shown = raw[:n].decode("utf-8", "replace")
        ends = [shown.find(s) for s in stops if s in shown]
        if ends:
            text = shown[: min(ends)]
            break
    assert text_of(pieces) == text
    assert [bool(p.finish) for p in pieces] == [False] * (len(pieces) - 1) + [True]


def test_sampling_follows_its_seed_and_top_p_cuts_the_tail() -> None:
    logits = torch.zeros(BYTES.vocabulary)
    logits[65], logits[66] = 3.0, 2.9

    def draw(seed: int, top_p: float) -> str:
        sampling = Sampling(max_tokens=30, temperature=1.0, top_p=top_p, seed=seed)
        return text_of(list(stream(logits, lambda _: logits, BYTES, [1], sampling)))

    assert draw(1, 1.0) == draw(1, 1.0) != draw(2, 1.0)
    assert set(draw(1, 0.1)) <= {"A", "B"}
    assert set(draw(1, 0.001)) == {"A"}  # the first token always stays


@given(st.integers(1, 300), st.integers(1, 64))
def test_chunks_are_even_and_lose_nothing(n: int, chunk: int) -> None:
    parts = even_chunks(torch.arange(n)[None], chunk)
    lengths = [p.shape[1] for p in parts]
    assert torch.equal(torch.cat(parts, 1)[0], torch.arange(n))
    assert max(lengths) <= chunk and max(lengths) - min(lengths) <= 1


def test_a_chat_is_shown_to_a_base_model_as_lines_with_roles() -> None:
    turns = [
        Message("system", "Be brief."),
        Message("user", " Hi "),
        Message("assistant", "Hello"),
        Message("user", "?"),
    ]
    assert base_chat(turns) == "System: Be brief.\nUser: Hi\nAssistant: Hello\nUser: ?\nAssistant:"
    assert BYTES.chat(turns)[1] == ("\nUser:", "\nSystem:")
