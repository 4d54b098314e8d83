"""Names for cached values, so that a trace holds no floats and no long texts."""

from __future__ import annotations

from typing import Any

from testbed.core import digest


class ValueNames:
    """What a value is called in a trace.

    A vector is named by what made it (``vector:<encoder>:<text digest>``), looked up by its exact bytes: its floats
    differ in the last bit between machines, its name does not, and a vector of another model cannot hide behind a
    label. Any other value is named by the digest of its canonical JSON, with vectors inside replaced by their names.
    """

    def __init__(self) -> None:
        self._by_bytes: dict[bytes, str] = {}

    def learn(self, vector: Any, fingerprint: str, text_digest: str) -> None:
        """Remember that this vector (float32) is what the encoder ``fingerprint`` makes of the text."""
        self._by_bytes.setdefault(vector.tobytes(), f"vector:{fingerprint[:12]}:{text_digest}")

    def of(self, value: Any) -> str:
        name = self._plain(value)
        return name if isinstance(name, str) and name.startswith("vector:") else digest.of_json(name)[: digest.SHORT]

    def _plain(self, value: Any) -> Any:
        if hasattr(value, "tobytes"):
            return self._by_bytes.get(value.tobytes(), "vector:unknown:")
        if isinstance(value, dict):
            return {k: self._plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(v) for v in value]
        return value
