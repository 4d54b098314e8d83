"""Names for cached values, so that a trace holds no floats and no long texts."""

from __future__ import annotations

import json
from typing import Any

from testbed.core import digest


class ValueNames:
    """What a value is called in a trace.

    A vector is named by what made it (``vector:<encoder>:<text digest>``), looked up by its exact bytes: its floats
    differ in the last bit between machines, its name does not, and a vector of another model cannot hide behind a
    label. Any other value is named by the digest of its canonical JSON, with vectors inside replaced by their names.
    """

    def __init__(self) -> None:
        # By text, the last one last: two texts can be the same to an encoder that reads only the first words.
        self._by_bytes: dict[bytes, dict[str, str]] = {}
        # The hook is called for what JSON does not know, so that plain values are not walked in Python.
        self._json = json.JSONEncoder(
            sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=self._vector
        )

    def learn(self, vector: Any, fingerprint: str, text_digest: str) -> None:
        """Remember that this vector (float32) is what the encoder ``fingerprint`` made of the text, just now.

        Two encoders can make the same bytes of a text (they differ in a tokenizer that this text does not show): the
        vector then has the name of the one that handed it out last.
        """
        names = self._by_bytes.setdefault(vector.tobytes(), {})
        names.pop(text_digest, None)
        names[text_digest] = f"vector:{fingerprint[:12]}:{text_digest}"

    def of(self, value: Any, text: str = "") -> str:
        """The name of a value: a vector's, or 16 hex digits.

        ``text`` is the digest of what the vector is held for: where several texts have these very bytes, and this is
        one of them, the vector is called after it.
        """
        if hasattr(value, "tobytes"):
            return self._vector(value, text)
        return digest.of_bytes(self._json.encode(value).encode("utf-8", "surrogatepass"))[: digest.SHORT]

    def _vector(self, value: Any, text: str = "") -> str:
        if not hasattr(value, "tobytes"):
            raise TypeError(f"a cached value of type {type(value).__name__} has no name")
        names = self._by_bytes.get(value.tobytes())
        if names is None:
            return "vector:unknown:"
        return names.get(text) or next(reversed(names.values()))
