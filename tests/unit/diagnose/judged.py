"""A baseline and a run of it, small and made by hand."""

from __future__ import annotations

import copy
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from testbed.core import digest
from testbed.core.evidence import DocRow, OpRow
from testbed.core.types import Claim, Event, Gold
from testbed.diagnose.remember import cell_of
from testbed.record.baseline import Cell
from testbed.record.folder import ArmWriter, RunReader, RunWriter
from tests.unit.record import recorded

N_ASKS = 400
TEXT, QUESTION, ANSWER = "the timeout is 30 ms", "how long is the timeout?", "30 ms"
DESCRIBED: dict[str, Any] = recorded.DESCRIBED | {
    "settings": {"stack": "reference", "store": "faiss", "queries": N_ASKS, "dataset": "", "deterministic": True},
    "arms": ["clean", "faulty", "faulty+cure", "clean+cure", "faulty-without:answer"],
    "metrics": {"MRR@5": "1", "true": "1"},
    "host": {"cores": 2, "cpu": "a cpu"},
}
# Of a stack that does not say that it is the same twice.
BY_CHANCE = {**DESCRIBED["settings"], "deterministic": False}
HOLDS = {"no-cross-tenant": True, "freshness": True}
BROKEN = {"no-cross-tenant": False, "freshness": True}
WITNESS = {"ops": [4, 9], "layer": "answer", "story": "op 9: tenant b was answered from a's entry written at op 4"}
# By arm: the share of asks whose answer is true, and what holds.
ARMS: dict[str, tuple[float, dict[str, bool | None]]] = {
    "clean": (1.0, HOLDS),
    "faulty": (0.5, BROKEN),
    "faulty+cure": (1.0, HOLDS),
    "clean+cure": (1.0, HOLDS),
    "faulty-without:answer": (1.0, HOLDS),
}


def arm_scores(share: float) -> list[float]:
    """True for exactly a share of the asks, scattered over the stream."""
    n = round(share * N_ASKS)
    return list(np.random.default_rng(1).permutation([1.0] * n + [0.0] * (N_ASKS - n)))


def run(
    results: Path,
    *,
    arms: dict[str, tuple[float, dict[str, bool | None]]] | None = None,
    scores: dict[str, list[float | None]] | None = None,
    hits: int = 200,
    moved: tuple[str, ...] = (),
    gone: dict[str, str] | None = None,
    detectable: float = 0.1,
    first_ask: int = 1,
    **changed: Any,
) -> RunReader:
    """A whole run in ``results``.

    Parameters
    ----------
    arms : in place of those of ``ARMS``
    scores : of ``true`` by arm, in place of what follows from the share
    hits : of the answer cache, in every arm; scattered over the stream
    moved : arms whose trace is another, though nothing that is measured is
    first_ask : op of the first ask, in the table of scores only
    gone : arms that are unsupported, and why
    """
    found = ARMS | (arms or {})
    given: dict[str, list[float | None]] = {arm: list(arm_scores(share)) for arm, (share, _) in found.items()}
    given |= scores or {}
    with RunWriter.start(results, copy.deepcopy(DESCRIBED) | changed) as writer:
        text, question = digest.of_text(TEXT), digest.of_text(QUESTION)
        load = OpRow(0, 0.0, "load", "1 documents")
        ops = [load, *(OpRow(i, float(i), "ask", "q1", "a", "s1", question) for i in range(1, N_ASKS + 1))]
        claim = Claim("gateway", "timeout", "30", "ms")
        writer.write_inputs(
            ops=ops,
            docs=[DocRow("d1", 1, "a", "record", text, 0)],
            gold=[Gold(i, "q1", "a", "timeout", {"d1": 1}, (ANSWER,), claim) for i in range(1, N_ASKS + 1)],
            texts=[TEXT, QUESTION, ANSWER],
        )
        for arm in found:
            with ArmWriter(writer.folder, arm, frozenset()) as sink:
                for event in _trace(arm, given[arm], hits, arm in moved):
                    sink.event(event)
            writer.recorded(arm, sink.digest)
        rows = [
            {"arm": arm, "op": place + first_ask, "query": "q1", "tenant": "a", "MRR@5": 1.0, "true": value}
            for arm in found
            if arm not in (gone or {})
            for place, value in enumerate(given[arm])
        ]
        folder = writer.finish(_summary(found, given, gone or {}, detectable), rows)
    return RunReader(folder)


def _trace(arm: str, scores: list[float | None], hits: int, moved: bool) -> list[Event]:
    """A lookup of the answer cache an ask; the value that is answered says what the score is."""
    key = {"tenant": "a", "text": digest.of_text(QUESTION)}
    value = "moved" if moved else "first"
    out, lucky = [], arm_scores(hits / N_ASKS)
    for op, score in enumerate(scores, start=1):
        hit = op > 1 and lucky[op - 1]
        out.append(Event(op, float(op), "answer", *(("hit", key, value) if hit else ("miss", key))))
        if op == 1:
            out.append(Event(op, float(op), "answer", "put", key, value))
        said = digest.of_text(f"{ANSWER} {score}")
        out.append(Event(op, float(op), "stack", "answer", {"query": "q1"}, said, {"ranking": ["d1"], "sources": []}))
    return out


def _summary(
    arms: dict[str, tuple[float, dict[str, bool | None]]],
    scores: dict[str, list[float | None]],
    gone: dict[str, str],
    detectable: float,
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for arm, (_, holds) in arms.items():
        if arm in gone:
            rows[arm] = {"status": "unsupported", "why": gone[arm]}
            continue
        known = [value for value in scores[arm] if value is not None]
        verdicts = [
            {
                "invariant": name,
                "holds": held,
                "violations": 0 if held else 7,
                "why": "no such event in the trace" if held is None else "",
                "witness": WITNESS if held is False else None,
            }
            for name, held in holds.items()
        ]
        means = {"MRR@5": 1.0, "true": sum(known) / len(known) if known else None}
        serving = {"answer": {"p95_ms": 1.25}, "stack": {"p95_ms": 4.5}}
        rows[arm] = {"status": "ok", "means": means, "verdicts": verdicts, "valid_hits": 0.5, "serving": serving}
    means = {arm: row["means"]["true"] for arm, row in rows.items() if row["status"] == "ok"}
    drops = {
        arm: mean - means["clean"]
        for arm, mean in {"faulty": 0.0, **means}.items()
        if arm != "clean" and mean is not None
    }
    return {
        "scenario": "tenant-leak",
        "order": list(arms),
        "metric": "true",
        "arms": rows,
        "deltas": {
            arm: {"true": {"mean": drop, "low": drop - 0.03, "high": drop + 0.03, "detectable": detectable}}
            for arm, drop in drops.items()
        },
        "expect": {
            "metric": "true",
            "drop_at_least": 0.1,
            "blame": "answer",
            "cured_by": ["cure"],
            "violates": ["no-cross-tenant"],
            "failures": [],
        },
    }


def cell(results: Path, **changed: Any) -> Cell:
    """What a baseline remembers of such a run."""
    return cell_of(run(results, **changed)) if changed else usual_cell()


@cache
def usual_cell() -> Cell:
    """What a baseline remembers of the usual run."""
    with tempfile.TemporaryDirectory() as folder:
        return cell_of(run(Path(folder)))
