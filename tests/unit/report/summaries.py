"""A small summary of the shape that ``diagnose.summary`` writes."""

from __future__ import annotations

import copy
from typing import Any

HOLDS = [{"invariant": "no-cross-tenant", "holds": True, "violations": 0}]
BROKEN = [{"invariant": "no-cross-tenant", "holds": False, "violations": 37}]
QUADRANTS = {
    "faithful_true": 240,
    "faithful_untrue": 150,
    "unfaithful_true": 1,
    "unfaithful_untrue": 2,
    "abstained": 7,
    "unscored": 0,
    "gap": 0.38,
}


def arm(mrr: float, true: float, hits: float, valid: float, verdicts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "status": "ok",
        "means": {"MRR@5": mrr, "faithful": 1.0, "true": true},
        "verdicts": verdicts,
        "hits": hits,
        "valid_hits": valid,
        "p95_ms": 12.345,
        "quadrants": QUADRANTS,
    }


def delta(mean: float) -> dict[str, Any]:
    return {"true": {"mean": mean, "low": mean - 0.05, "high": mean + 0.05}}


SUMMARY: dict[str, Any] = {
    "scenario": "tenant-leak",
    "variant": "answer-key",
    "about": "the answer cache's key leaves the tenant out",
    "seed": 42,
    "level": 1.0,
    "stack": "reference",
    "store": "faiss",
    "dataset": "ledger",
    "queries": 400,
    "digest": "0123456789abcdef" * 4,
    "metric": "true",
    "hits_of": "answer",
    "order": ["clean", "faulty", "faulty+typed-tenant-key", "clean+typed-tenant-key", "faulty-without:answer"],
    "arms": {
        "clean": arm(0.9, 0.95, 0.4, 0.4, HOLDS),
        "faulty": arm(0.7, 0.6, 0.7, 0.3, BROKEN),
        "faulty+typed-tenant-key": arm(0.9, 0.95, 0.4, 0.4, HOLDS),
        "clean+typed-tenant-key": arm(0.9, 0.95, 0.39, 0.39, HOLDS),
        "faulty-without:answer": {"status": "unsupported", "why": "no such layer"},
    },
    "deltas": {
        "faulty": delta(-0.35),
        "faulty+typed-tenant-key": delta(0.0),
        "clean+typed-tenant-key": delta(-0.0),
    },
    "blame": [
        {"layer": "answer", "share": 1.02, "low": 0.9, "high": 1.1, "why": ""},
        {"layer": "retrieval", "share": -0.001, "low": -0.1, "high": 0.1, "why": ""},
    ],
    "fixes": [
        {
            "fix": "typed-tenant-key",
            "recovered": {"layer": "typed-tenant-key", "share": 1.0},
            "metric_lost": 0.0,
            "hit_rate_lost": {"answer": 0.01},
            "p95_ms_added": {"stack": 0.25},
            "violates": [],
        }
    ],
    "heatmap": {
        "layers": ["answer", "retrieval"],
        "hits": {"answer": [0.0, 0.5, 1.0, None], "retrieval": [0.1, 0.1, 0.1, 0.1]},
        "valid_hits": {"answer": [0.0, 0.2, 0.3, None], "retrieval": [0.1, 0.1, 0.1, 0.1]},
        "delta": [0.0, -0.2, -0.4, None],
    },
    "published_attribution": [{"layer": "answer", "peak": 40, "inflection": 42, "delta": -0.3, "confidence": 0.86}],
    "violated": "no-cross-tenant",
    "witness": {
        "ops": [7, 18],
        "layer": "answer",
        "story": "op 18: tenant b asked 'how long?' and was answered from a's entry written at op 7",
    },
    "versions": [],
    "expect": {
        "metric": "true",
        "drop_at_least": 0.1,
        "blame": "answer",
        "cured_by": ["typed-tenant-key"],
        "violates": ["no-cross-tenant"],
        "applies": True,
        "why_not": "",
        "failures": [],
    },
}


def summary(**changed: Any) -> dict[str, Any]:
    return copy.deepcopy(SUMMARY) | changed
