"""What the sliding-sparse cache keeps: its settings, and the bound that follows from them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from testbed.core.errors import InvalidInput

THRESHOLD_VARIABLE = "DEEPSEEK_CACHE_THRESHOLD"
DEFAULT_THRESHOLD = 0.15
DECODE_RECALL_VARIABLE = "DEEPSEEK_CACHE_DECODE_RECALL"
DECODE_RECALL_FLAG = "--kv-decode-recall"
DEFAULT_DECODE_RECALL = 1  # of the server, whose host tier is on; what it costs and finds is measured in docs/kv.md


def threshold_from_environment() -> float:
    """``DEEPSEEK_CACHE_THRESHOLD``, 0.15 where it is not set."""
    text = os.environ.get(THRESHOLD_VARIABLE, "")
    try:
        return float(text) if text else DEFAULT_THRESHOLD
    except ValueError as e:
        raise InvalidInput(f"{THRESHOLD_VARIABLE}={text!r} must be a number") from e


def served_decode_recall(flag: str | None) -> int:
    """The text of ``--kv-decode-recall``, else of ``DEEPSEEK_CACHE_DECODE_RECALL``, as a number; 1 where neither is."""
    variable = os.environ.get(DECODE_RECALL_VARIABLE, "")
    name, text = (DECODE_RECALL_VARIABLE, variable) if flag is None else (DECODE_RECALL_FLAG, flag)
    if flag is None and not text:
        return DEFAULT_DECODE_RECALL
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"{name}={text!r} must be a whole number of blocks; 0 recalls nothing while decoding")
    return int(text)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which rows of a full-attention layer stay on the device.

    Sinks (the first tokens) and the window (the last ones) always stay. In between, tokens live in blocks; a block
    stays while its score reaches ``threshold``.

    Parameters
    ----------
    window : last tokens, never dropped
    threshold : share of the head's best cold block that a block must reach; relative, so it bounds nothing by itself
    block : tokens per block
    sink : first tokens, never dropped; a multiple of ``block``
    max_blocks : most cold blocks kept per layer, best first: this is the memory bound; None is no bound
    decay : weight of the past in a block's score, 0 forgets
    observe : last queries of a chunk (or of the decoded tokens) whose attention is the score
    spread : a block takes the best score among this many neighbours on each side: facts straddle borders
    heads : how the scores of the heads become one: a block that *one* head needs is needed
    host_blocks : most demoted blocks per layer in host memory; 0 drops them for good
    recall : demoted blocks, with ``spread`` neighbours each, that a chunk's queries may bring back
    decode_recall : the same for a decoded token, once per ``block`` tokens; where ``max_blocks`` are there already,
        only in exchange for others that the token wants less
    positions : ``absolute`` as trained; ``compact`` renumbers the kept rows: no distance then exceeds their number
    memo : keep rotated keys while decoding (half as much again as the kept rows) instead of rotating at every token
    """

    window: int = 1024
    threshold: float = DEFAULT_THRESHOLD
    block: int = 64
    sink: int = 64
    max_blocks: int | None = 128
    decay: float = 0.5
    observe: int = 32
    spread: int = 1
    heads: Literal["max", "mean"] = "max"
    host_blocks: int = 0
    recall: int = 4
    decode_recall: int = 0
    positions: Literal["absolute", "compact"] = "absolute"
    memo: bool = True

    def __post_init__(self) -> None:
        self._at_least("window", 1)
        self._at_least("block", 1)
        self._at_least("observe", 1)
        for name in ("sink", "spread", "host_blocks", "recall", "decode_recall", "threshold"):
            self._at_least(name, 0)
        if self.sink % self.block:
            raise InvalidInput(f"sink={self.sink} must be a multiple of block={self.block}")
        if not 0 <= self.decay < 1:
            raise InvalidInput(f"decay={self.decay} must be in [0, 1)")
        if self.max_blocks is not None:
            self._at_least("max_blocks", 0)
        if self.positions == "compact" and self.host_blocks:
            raise InvalidInput("positions='compact' knows no place for rows that come back; set host_blocks=0")
        if self.heads not in ("max", "mean") or self.positions not in ("absolute", "compact"):
            raise InvalidInput(f"heads={self.heads!r}, positions={self.positions!r} are not known")

    @property
    def is_lossless(self) -> bool:
        """True when nothing can ever be dropped."""
        return self.threshold == 0 and self.max_blocks is None

    def recall_at_once(self, blocks: int) -> int:
        """Most blocks that a recall of so many brings back, neighbours included."""
        return min(self.host_blocks, blocks * (1 + 2 * self.spread))

    def rows_bound(self) -> int | None:
        """Most rows that one full-attention layer holds between two forward passes; None without ``max_blocks``.

        Sinks, the capped blocks, the window, the part of a block that has only half left it, and up to one block of
        decoded tokens before the next pruning.
        """
        if self.max_blocks is None:
            return None
        return self.sink + self.max_blocks * self.block + self.window + 2 * self.block - 1

    def transient_rows(self, chunk: int) -> int | None:
        """Most rows of the one layer that is at work during a prefill chunk; the other layers hold ``rows_bound``."""
        bound = self.rows_bound()
        return None if bound is None else bound + self.recall_at_once(self.recall) * self.block + chunk

    def _at_least(self, name: str, least: float) -> None:
        value = getattr(self, name)
        if not value >= least:
            raise InvalidInput(f"{name}={value} must be at least {least:g}")
