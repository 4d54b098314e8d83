"""Outcomes of runs that never were, with figures to check by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def arm(
    value: float,
    *,
    hits: float = 0.5,
    p95_ms: float = 10.0,
    held_bytes: int | None = 1000,
    violated: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    return {
        "status": "ok",
        "value": value,
        "means": {"true": value},
        "hits": hits,
        "valid_hits": hits,
        "p95_ms": p95_ms,
        "held_bytes": held_bytes,
        "violated": dict(violated or {}),
        "undecided": [],
    }


def outcome(
    arms: Mapping[str, Any],
    *,
    seed: int = 1,
    level: float = 1.0,
    metric: str = "true",
    deltas: Mapping[str, Any] | None = None,
    fixes: Sequence[Mapping[str, Any]] = (),
    failures: Sequence[str] = (),
    applies: bool = True,
) -> dict[str, Any]:
    return {
        "scenario": "s",
        "variant": "v",
        "seed": seed,
        "level": level,
        "queries": 400,
        "stack": "reference",
        "store": "faiss",
        "digest": "",
        "metric": metric,
        "hits_of": "answer",
        "expect": {"applies": applies, "why_not": "", "failures": list(failures)},
        "fixes": list(fixes),
        "arms": dict(arms),
        "deltas": dict(deltas or {}),
    }
