"""What a run was asked for, checked at the edge."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from testbed.core.errors import InvalidInput, unknown

LEVELS = {"low": 0.1, "medium": 0.3, "high": 1.0}
STORES = ("faiss", "chroma", "exact")
STACKS = ("reference", "llama-index")
BACKENDS = ("embedded", "compose")
BLAMES = ("bypass", "shapley")
MIN_QUERIES, MAX_QUERIES = 10, 100_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The knobs of one run.

    Parameters
    ----------
    scenario : name, as ``testbed list`` shows it
    variant : one of the scenario's variants; "" is its first
    level : share of keys, documents or sessions that the fault touches, in [0, 1]
    stack : ``reference``, ``llama-index``, or ``package.module:build`` of the user's own
    store : ``faiss`` (exact), ``chroma``, ``exact`` (numpy)
    dataset : "" is the scenario's own; else a name or a folder
    queries : asks in the stream
    arms : names of the only arms to run; () is all of them
    blame : ``bypass`` runs the faulty stack without each layer, ``shapley`` without each set of layers
    redis_url : a server to use instead of a private one
    chroma_url : a Chroma server to use instead of an in-process one
    """

    scenario: str
    variant: str = ""
    seed: int = 42
    level: float = 1.0
    stack: str = "reference"
    store: str = "faiss"
    dataset: str = ""
    queries: int = 400
    arms: tuple[str, ...] = ()
    backend: str = "embedded"
    blame: str = "bypass"
    redis_url: str = ""
    chroma_url: str = ""
    results_dir: Path = Path("results")
    scenarios_dir: Path | None = None
    argv: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InvalidInput(f"SEED={self.seed} must be an integer >= 0")
        if math.isnan(self.level) or not 0.0 <= self.level <= 1.0:
            raise InvalidInput(f"POLLUTION_LEVEL={self.level:g} must be low, medium, high, or a number from 0 to 1")
        if not MIN_QUERIES <= self.queries <= MAX_QUERIES:
            raise InvalidInput(f"QUERIES={self.queries} must be from {MIN_QUERIES} to {MAX_QUERIES}")
        if self.store not in STORES:
            raise unknown("STORE", self.store, STORES)
        if self.stack not in STACKS and ":" not in self.stack:
            raise unknown("STACK", self.stack, STACKS, "or package.module:build of your own")
        if self.backend not in BACKENDS:
            raise unknown("BACKEND", self.backend, BACKENDS)
        if self.blame not in BLAMES:
            raise unknown("BLAME", self.blame, BLAMES)


def level_of(text: str) -> float:
    """``low``, ``medium``, ``high`` or a number from 0 to 1."""
    if text in LEVELS:
        return LEVELS[text]
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if math.isnan(level) or not 0.0 <= level <= 1.0:
        raise InvalidInput(f"POLLUTION_LEVEL={text} must be low, medium, high, or a number from 0 to 1")
    return level


def seed_of(text: str) -> int:
    """An integer >= 0."""
    if not (text.isascii() and text.isdigit()):
        raise InvalidInput(f"SEED={text} must be an integer >= 0")
    return int(text)
