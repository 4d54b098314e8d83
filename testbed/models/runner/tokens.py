"""Text to token ids and back, and the plain format in which a base model is shown a chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from testbed.core.errors import InvalidInput

BASE_CHAT_STOPS = ("\nUser:", "\nSystem:")


class Message(NamedTuple):
    """One turn of a chat; ``role`` is ``system``, ``user`` or ``assistant``."""

    role: str
    content: str


class Tokenizer(Protocol):
    """``encode`` adds the model's own beginning-of-text token; ``decode`` leaves special tokens out.

    ``chat`` gives the prompt's ids and the stop strings that the format brings along.
    """

    @property
    def stops(self) -> frozenset[int]: ...
    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def chat(self, messages: Sequence[Message]) -> tuple[list[int], tuple[str, ...]]: ...


def base_chat(messages: Sequence[Message]) -> str:
    """The format for a model without a chat template: ``Role: text`` lines, then an open ``Assistant:``.

    One turn a paragraph, ``System``, ``User`` or ``Assistant`` before it. The answer ends where the model starts the
    next turn by itself (``BASE_CHAT_STOPS``).
    """
    lines = [f"{m.role.capitalize()}: {m.content.strip()}" for m in messages]
    return "\n".join([*lines, "Assistant:"])


class ByteTokenizer:
    """One token per UTF-8 byte: what the ``tiny`` model speaks. Ids 0-255 are bytes, 256 begins, 257 ends a text."""

    begin, end = 256, 257
    vocabulary = 258

    @property
    def stops(self) -> frozenset[int]:
        return frozenset({self.end})

    def encode(self, text: str) -> list[int]:
        return [self.begin, *text.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode("utf-8", "replace")

    def chat(self, messages: Sequence[Message]) -> tuple[list[int], tuple[str, ...]]:
        return self.encode(base_chat(messages)), BASE_CHAT_STOPS


class PretrainedTokenizer:
    """A transformers tokenizer; its own chat template where it has one."""

    def __init__(self, inner: Any, stops: frozenset[int]) -> None:
        self._inner = inner
        self._stops = stops

    @property
    def stops(self) -> frozenset[int]:
        return self._stops

    def encode(self, text: str) -> list[int]:
        return [int(i) for i in self._inner(text).input_ids]

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._inner.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def chat(self, messages: Sequence[Message]) -> tuple[list[int], tuple[str, ...]]:
        if not self._inner.chat_template:
            return self.encode(base_chat(messages)), BASE_CHAT_STOPS
        turns = [{"role": m.role, "content": m.content} for m in messages]
        try:
            text = self._inner.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except Exception as e:  # a template raises its own kind of error for a role order that it does not know
            raise InvalidInput(f"the model's chat template refuses these messages: {e}") from e
        return [int(i) for i in self._inner(text, add_special_tokens=False).input_ids], ()
