"""Who made what is in the caches: the version in force beside the versions that they really hold.

The model's *name* is the same all along; what tells versions apart is the fingerprint that each vector's bytes betray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from testbed.core.evidence import Evidence
from testbed.core.history import encoder_of


def table(evidence: Evidence) -> list[dict[str, str]]:
    """Rows ``part actual believed agree`` for tokenizer, model and index; [] where the stack does not describe itself.

    ``actual`` is in force for questions at the end of the run. ``believed`` is what the caches take for it: the
    tokenizer that cut the documents of the index, the encoder of the question vectors that the embedding cache served
    since the last upgrade, the encoders of the index's rows.
    """
    described = [e.data.get("parts") for e in evidence.events if e.kind == "describe"]
    parts = described[-1] if described else None
    if not isinstance(parts, list) or not all("fingerprint" in part for part in parts):
        return []
    known: dict[str, Mapping[str, Any]] = {part["fingerprint"]: part for part in parts}
    force = parts[-1]
    rows = _rows(evidence)
    served = _served(evidence)
    return [
        _line(
            "tokenizer", force["tokenizer"], _counted(rows, lambda fp: known.get(fp, {}).get("tokenizer", "unknown"))
        ),
        _line("model", _called(force), _counted(served, lambda fp: _called(known.get(fp, {"fingerprint": fp})))),
        _line("index", _called(force), _counted(rows, lambda fp: _called(known.get(fp, {"fingerprint": fp})))),
    ]


def _rows(evidence: Evidence) -> Counter[str]:
    """Rows of the index at the end, by the encoder that made them."""
    held: dict[str, str] = {}
    for event in evidence.events:
        if event.layer == "index" and event.kind == "put":
            held[event.key["doc"]] = encoder_of(event.value)
        elif event.layer == "index" and event.kind == "delete":
            held.pop(event.key["doc"], None)
    return Counter(held.values())


def _served(evidence: Evidence) -> Counter[str]:
    """Question vectors that the embedding cache served since the last upgrade, by encoder."""
    since = max((op.index for op in evidence.ops if op.do == "upgrade"), default=0)
    return Counter(
        encoder_of(e.value)
        for e in evidence.events
        if e.layer == "embedding" and e.kind == "hit" and e.op > since and e.key.get("role") == "query"
    )


def _called(part: Mapping[str, Any]) -> str:
    return f"{part.get('model', 'unknown')} {str(part.get('fingerprint', ''))[:8]}".strip()


def _counted(counts: Counter[str], called: Any) -> Counter[str]:
    named: Counter[str] = Counter()
    for fingerprint, count in counts.items():
        named[called(fingerprint)] += count
    return named


def _line(part: str, actual: str, held: Counter[str]) -> dict[str, str]:
    total = sum(held.values())
    found = [f"{name} ({count} of {total})" for name, count in sorted(held.items(), key=lambda x: (-x[1], x[0]))]
    agree = "nothing cached" if not total else "yes" if set(held) == {actual} else "no"
    return {"part": part, "actual": actual, "believed": ", ".join(found) or "-", "agree": agree}
