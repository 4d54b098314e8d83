"""A small run, written the way the run loop writes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testbed.core import digest
from testbed.core.evidence import DocRow, OpRow
from testbed.core.types import Claim, Event, Gold
from testbed.record.folder import ArmWriter, RunWriter

DESCRIBED: dict[str, Any] = {
    "format": 1,
    "status": "started",
    "started": "20260102T030405Z",
    "argv": ["run", "tenant-leak"],
    "scenario": "tenant-leak",
    "scenario_digest": "5c",
    "variant": "answer-key",
    "seed": 42,
    "level": 1.0,
    "data": {"name": "ledger", "digest": "da7a"},
    "settings": {"stack": "reference", "store": "faiss", "queries": 2},
    "arms": ["clean", "faulty"],
    "metrics": {"MRR@5": "1"},
}
QUESTION = "how long is the timeout?"
OPS = (
    OpRow(0, 0.0, "load", "1 documents"),
    OpRow(1, 1.5, "ask", "q1", "a", "s1", digest.of_text(QUESTION), prompt="brief"),
)
DOC = DocRow("d1", 1, "a", "record", digest.of_text("the timeout is 30 ms"), 0)
GOLD = Gold(1, "q1", "a", "timeout", {"d1": 1}, ("30 ms",), Claim("gateway", "timeout", "30", "ms"))
MISS = Event(1, 1.5, "answer", "miss", {"tenant": "a", "text": digest.of_text(QUESTION)})
ANSWER = Event(1, 1.5, "stack", "answer", {"query": "q1"}, "abcd", {"ranking": ["d1", "d 2"], "sources": []})
SUMMARY: dict[str, Any] = {
    "order": ["clean", "faulty"],
    "arms": {name: {"status": "ok", "means": {"MRR@5": mean}} for name, mean in (("clean", 1.0), ("faulty", 0.5))},
}
SCORES = [
    {"arm": "clean", "op": 1, "query": "q1", "tenant": "a", "MRR@5": 1.0, "true": None},
    {"arm": "faulty", "op": 1, "query": "q1", "tenant": "a", "MRR@5": 0.5},
]
# What `testbed shrink` has found of it.
SHRUNK: dict[str, Any] = {
    "invariant": "no-cross-tenant",
    "violation": 1,
    "violations": 12,
    "ops": [0, 7, 18],
    "of_ops": 61,
    "docs": ["a-1", "b-1"],
    "of_docs": 632,
    "minimal": True,
    "replays": 5,
    "notes": [],
    "story": ["op 0: 2 documents loaded: a-1, b-1", "op 7: tenant a asked", "op 18: tenant b was answered from a's"],
}


def start(results: Path, **changed: Any) -> RunWriter:
    return RunWriter.start(results, DESCRIBED | changed)


def crash(results: Path) -> Path:
    """A run that was killed after its last arm; its folder."""
    writer = start(results)
    fill(writer)
    folder = writer.folder
    writer.__exit__(None, None, None)  # what the system does to the files of a killed process
    return folder


def fill(writer: RunWriter, *, faulty: tuple[Event, ...] = (MISS, ANSWER)) -> None:
    """Inputs and two arms, clean and faulty."""
    known = [QUESTION, "the timeout is 30 ms"]
    writer.write_inputs(ops=OPS, docs=[DOC], gold=[GOLD], texts=[*known, QUESTION], canaries={"a": "zq"})
    for name, events in (("clean", (MISS, ANSWER)), ("faulty", faulty)):
        with ArmWriter(writer.folder, name, frozenset(map(digest.of_text, known))) as arm:
            for event in events:
                arm.event(event)
            arm.text(digest.of_text(QUESTION), QUESTION)
            arm.text("abcd", "30 ms")
            arm.text("abcd", "30 ms")
            arm.timing(1, "answer", "miss", 1200)
        writer.recorded(name, arm.digest)


def record(results: Path, *, faulty: tuple[Event, ...] = (MISS, ANSWER), **changed: Any) -> Path:
    """A whole run in ``results``; its folder."""
    with start(results, **changed) as writer:
        fill(writer, faulty=faulty)
        return writer.finish(SUMMARY, SCORES)
