"""An encoder that tells questions from documents by an instruction in front of the question."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.core import digest
from testbed.core.ports import Encoder, Role, Vectors

INSTRUCTION = (
    "Represent this sentence for searching relevant passages: "  # as retrieval models of the BGE family ask for
)


class Instructed:
    """Questions get an instruction, documents do not: the vector of a text depends on its role.

    Parameters
    ----------
    name : what people call the model
    """

    def __init__(self, inner: Encoder, *, name: str, instruction: str = INSTRUCTION) -> None:
        self._inner = inner
        self._instruction = instruction
        self.name = name
        self.tokenizer = inner.tokenizer
        self.dim = inner.dim
        self.fingerprint = digest.of_json({"inner": inner.fingerprint, "instruction": instruction})

    def shown(self, text: str, role: Role) -> str:
        """The text that is really embedded."""
        return self._instruction + text if role == "query" else text

    def encode(self, texts: Sequence[str], role: Role) -> Vectors:
        return self._inner.encode([self.shown(text, role) for text in texts], role)
