"""The generation loop: prompt ids in, pieces of text out. One sequence at a time, nothing shared between sequences.

Sequences are never batched together: the last bits of a batched matrix product depend on its neighbours, and an
answer here is a function of its own request alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from testbed.models.runner.tokens import Tokenizer

Finish = Literal["", "stop", "length"]
Steps = Callable[[Any, int], torch.Tensor]  # (cache, token) to the next logits (vocabulary,) in float32


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. ``temperature`` 0 is greedy: the most likely token, the lowest id on a tie."""

    max_tokens: int = 16
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()


class Piece(NamedTuple):
    """Text that is settled, and, in the last piece, why it ended. ``n_tokens`` generated so far."""

    text: str
    finish: Finish
    n_tokens: int


def stream(
    logits: torch.Tensor,
    step: Callable[[int], torch.Tensor],
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    sampling: Sampling,
) -> Iterator[Piece]:
    """Continue a prompt whose last logits (vocabulary,) are known; ``step(token)`` gives the next ones.

    Ends with exactly one piece whose ``finish`` is set. A stop string is never part of the text, nor is any piece of
    one that could still become whole.
    """
    choose = _chooser(sampling)
    text = _Text(tokenizer, prompt, sampling.stop)
    for n in range(1, sampling.max_tokens + 1):
        token = choose(logits)
        if token in tokenizer.stops:
            yield Piece(text.rest(), "stop", n)
            return
        settled, stopped = text.add(token)
        if stopped:
            yield Piece(settled, "stop", n)
            return
        if n == sampling.max_tokens:
            yield Piece(settled + text.rest(), "length", n)
            return
        if settled:
            yield Piece(settled, "", n)
        logits = step(token)
    yield Piece("", "length", 0)


def prefill(
    model: Any, ids: torch.Tensor, cache: Any, chunk: int, went_on: Callable[[], None] = lambda: None
) -> torch.Tensor:
    """Run the prompt (1, n) through the model in chunks of at most ``chunk`` tokens; the last logits (vocabulary,).

    Chunks are of equal length up to one token: a remainder of a single token would be handled as a decoded one.
    ``went_on`` is called between chunks; what it raises ends the work.
    """
    logits = torch.empty(0)
    for part in even_chunks(ids, chunk):
        went_on()
        logits = model(part, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
    return logits.float()


def steps_of(model: Any) -> Steps:
    """Decode with any cache, a forward pass for each token."""

    def step(cache: Any, token: int) -> torch.Tensor:
        ids = torch.tensor([[token]], device=model.device)
        logits: torch.Tensor = model(ids, cache=cache, use_cache=True).logits
        return logits[0, -1].float()

    return step


def even_chunks(ids: torch.Tensor, chunk: int) -> tuple[torch.Tensor, ...]:
    """Split (batch, n) along n into the fewest parts of at most ``chunk``, lengths differing by at most one."""
    n = ids.shape[1]
    count = max(1, -(-n // chunk))
    return ids.tensor_split(count, dim=1)


def _chooser(sampling: Sampling) -> Callable[[torch.Tensor], int]:
    if sampling.temperature == 0.0:
        return lambda logits: int(logits.argmax())
    draw = torch.Generator().manual_seed(sampling.seed)

    def sample(logits: torch.Tensor) -> int:
        probs, ids = (logits.cpu().double() / sampling.temperature).softmax(-1).sort(descending=True, stable=True)
        # the first token always stays; later ones while the mass before them is under top_p
        probs[(probs.cumsum(-1) - probs >= sampling.top_p)] = 0.0
        probs[0].clamp_(min=torch.finfo(probs.dtype).tiny)
        return int(ids[torch.multinomial(probs, 1, generator=draw)])

    return sample


class _Text:
    """Detokenises as tokens come: holds back half a character, and what may become a stop string."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        # a few tokens of the prompt: some tokenizers drop a space at the start of what they decode
        self._ids = list(prompt[-4:])
        self._skip = len(tokenizer.decode(self._ids))
        self._stops = tuple(s for s in stops if s)
        self._given = 0

    def add(self, token: int) -> tuple[str, bool]:
        """What is settled by this token, and whether a stop string has been met."""
        self._ids.append(token)
        text = self._all()
        ends = [at for s in self._stops if (at := text.find(s)) >= 0]
        if ends:
            return self._upto(text, min(ends)), True
        whole = text.rstrip("\ufffd")
        return self._upto(whole, len(whole) - self._held(whole)), False

    def rest(self) -> str:
        text = self._all()
        return self._upto(text, len(text))

    def _all(self) -> str:
        text: str = self._tokenizer.decode(self._ids)
        return text[self._skip :]

    def _held(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop string."""
        longest = max((len(s) for s in self._stops), default=0) - 1
        for n in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-n:]) for s in self._stops):
                return n
        return 0

    def _upto(self, text: str, end: int) -> str:
        out = text[self._given : end]
        self._given = max(self._given, end)
        return out
