"""Results folders to make pages of: as long as a test needs them, with whatever texts it needs in them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from testbed.core import digest
from testbed.core.evidence import DocRow, OpRow
from testbed.core.types import Event, Gold
from testbed.record.folder import ArmWriter, RunWriter
from tests.unit.record.recorded import DESCRIBED
from tests.unit.report.summaries import SUMMARY

ARMS = ("clean", "faulty")
LEAKED = 3  # every third asker is served another tenant's answer in the faulty arm
POLLUTION: dict[str, Any] = {
    "outcomes": {
        "answer": {
            "fresh": [1, 1, 1, 1],
            "stale": [0, 1, 0, 0],
            "foreign": [0, 1, 2, 2],
            "wrong": [0, 0, 0, 1],
            "unknown": [0, 0, 0, 0],
            "miss": [3, 2, 1, 0],
        }
    },
    "poisoned": [0, 1, 2, 3],
    "blast_radius": 2,
    "first_bad_s": 3.0,
    "time_to_detect_s": 5.0,
    "time_to_clean_s": None,
    "changes": [2],
}


def record(
    results: Path,
    *,
    n: int = 6,
    question: str = "how long is the timeout?",
    answer: str = "30 ms",
    tenant: str = "a",
    accept: tuple[str, ...] = ("30 ms",),
    summary: dict[str, Any] | None = None,
    latency_ms: float = 12.345,
    chatter: int = 0,
    **described: Any,
) -> Path:
    """A whole run of ``n`` questions in two arms; its folder.

    ``summary`` changes fields of the summary; ``chatter`` are further events of each ask, as a real stack has them.
    """
    with RunWriter.start(results, copy.deepcopy(DESCRIBED) | described) as writer:
        known = {digest.of_text(text): text for text in (question, "the timeout is 30 ms")}
        writer.write_inputs(
            ops=_ops(n, question, tenant),
            docs=[DocRow("d1", 1, tenant, "record", digest.of_text("the timeout is 30 ms"), 0)],
            gold=[Gold(op, f"q{op}", tenant, "timeout", {"d1": 1}, accept) for op in range(1, n + 1)],
            texts=known.values(),
        )
        for name in ARMS:
            with ArmWriter(writer.folder, name, frozenset(known)) as arm:
                for text in (answer, f"{answer} of another"):
                    arm.text(digest.of_text(text), text)
                for event in _events(n, answer, question, chatter, faulty=name == "faulty"):
                    arm.event(event)
            writer.recorded(name, arm.digest)
        found = copy.deepcopy(SUMMARY) | {"queries": n, "pollution": copy.deepcopy(POLLUTION)} | (summary or {})
        for name in ARMS:
            found["arms"][name]["p95_ms"] = latency_ms
        return writer.finish(found | {"digest": writer.digest()}, list(_scores(n, tenant)))


def is_leaked(op: int) -> bool:
    return op % LEAKED == 0


def _ops(n: int, question: str, tenant: str) -> Iterator[OpRow]:
    yield OpRow(0, 0.0, "load", "1 documents")
    for op in range(1, n + 1):
        yield OpRow(op, float(op), "ask", f"q{op}", tenant, "s1", digest.of_text(question))


def _events(n: int, answer: str, question: str, chatter: int, *, faulty: bool) -> Iterator[Event]:
    right, wrong, key = digest.of_text(answer), digest.of_text(f"{answer} of another"), digest.of_text(question)
    for op in range(1, n + 1):
        bad = faulty and is_leaked(op)
        yield Event(op, float(op), "answer", "hit" if bad else "miss", {"text": key})
        for i in range(chatter):
            yield Event(op, float(op), "text", "hit", {"id": f"document-{i}", "revision": "1"}, right)
        yield Event(op, float(op), "stack", "answer", {"query": f"q{op}"}, wrong if bad else right, {"ranking": ["d1"]})


def _scores(n: int, tenant: str) -> Iterator[dict[str, Any]]:
    for arm in ARMS:
        for op in range(1, n + 1):
            bad = arm == "faulty" and is_leaked(op)
            labels = {"arm": arm, "op": op, "query": f"q{op}", "tenant": tenant}
            rates = {"abstained": 0.0, "leak rate": float(bad), "stale rate": None}
            yield {**labels, "MRR@5": 1.0, "faithful": 1.0, "true": float(not bad), **rates}


class Parsed(HTMLParser):
    """What a browser would see of a page: its elements with their attributes, and the text of each kind of element."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page.decode("utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self) -> str:
        """All that is read: neither style nor script."""
        return " ".join(" ".join(data for tag, data in self.texts if tag not in ("style", "script")).split())
