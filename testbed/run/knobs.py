"""From what was typed to ``Settings``: every knob is a word until here, and a wrong one says what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from testbed.core.errors import InvalidInput
from testbed.run.settings import MAX_QUERIES, MIN_QUERIES, Settings, level_of, seed_of


def settings(scenario: str, typed: Mapping[str, str]) -> Settings:
    """Settings from knobs by name (``SEED``, ``POLLUTION_LEVEL``, ...); an empty one is as good as none."""
    given = {knob: word.strip() for knob, word in typed.items() if word and word.strip()}
    return Settings(
        scenario,
        variant=given.get("VARIANT", ""),
        seed=seed_of(given.get("SEED", "42")),
        level=level_of(given.get("POLLUTION_LEVEL", "high")),
        stack=given.get("STACK", "reference"),
        store=given.get("STORE", "faiss"),
        dataset=given.get("DATASET", ""),
        queries=queries_of(given.get("QUERIES", "400")),
        backend=given.get("BACKEND", "embedded"),
        blame=given.get("BLAME", "bypass"),
        redis_url=given.get("REDIS_URL", ""),
        chroma_url=given.get("CHROMA_URL", ""),
        results_dir=Path(given.get("RESULTS_DIR", "results")),
    )


def queries_of(word: str) -> int:
    """A number of questions; its range is checked by ``Settings``."""
    if not (word.isascii() and word.isdigit()):
        raise InvalidInput(f"QUERIES={word} must be a whole number from {MIN_QUERIES} to {MAX_QUERIES}")
    return int(word)


def share_of(knob: str, word: str, usual: float = 0.20) -> float:
    """A number above 0 and up to 1; ``usual`` where none is given."""
    try:
        share = float(word) if word.strip() else usual
    except ValueError:
        share = 0.0
    if not 0.0 < share <= 1.0:
        raise InvalidInput(f"{knob}={word} must be a number above 0 and up to 1")
    return share
