"""Chosen asks of a run: what was asked, what was true, what an arm served. Reads no more of a long run than it must."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from testbed.record.folder import RunReader, slug

NO_CACHE = "none"


class Asked(NamedTuple):
    """One ask and its truth. ``accept`` is () where the data does not say what is right."""

    op: int
    tenant: str
    question: str
    accept: tuple[str, ...]


class Served(NamedTuple):
    """What one arm answered. ``layer`` is the first cache that hit, tiers aside; ``none`` when none did."""

    answer: str
    layer: str
    abstained: bool


def asked(reader: RunReader, ops: Collection[int]) -> dict[int, Asked]:
    """The asks among ``ops``, by op."""
    accept = {row["op"]: tuple(row["accept"]) for row in reader.lines("gold.jsonl") if row["op"] in ops}
    found = [row for row in reader.lines("ops.jsonl") if row["index"] in ops and row["do"] == "ask"]
    texts = _texts(reader, "texts.jsonl", {row.get("text", "") for row in found})
    return {
        row["index"]: Asked(
            row["index"], row.get("tenant", ""), texts.get(row.get("text", ""), ""), accept.get(row["index"], ())
        )
        for row in found
    }


def served(reader: RunReader, arm: str, ops: Collection[int]) -> dict[int, Served]:
    """What ``arm`` answered to those ``ops``, by op; an ask that it did not answer is missing."""
    layers: dict[int, str] = {}
    answers: dict[int, tuple[str, bool]] = {}
    for row in reader.lines(f"arms/{slug(arm)}/trace.jsonl"):
        op = row["op"]
        if op not in ops:
            continue
        if row["kind"] == "hit" and "." not in row["layer"]:
            layers.setdefault(op, row["layer"])
        elif row["kind"] == "answer":
            answers[op] = row.get("value", ""), bool(row.get("data", {}).get("abstained"))
    wanted = {value for value, _ in answers.values()}
    texts = _texts(reader, "texts.jsonl", wanted) | _texts(reader, f"arms/{slug(arm)}/texts.jsonl", wanted)
    return {
        op: Served(texts.get(value, ""), layers.get(op, NO_CACHE), abstained)
        for op, (value, abstained) in answers.items()
    }


def _texts(reader: RunReader, name: str, wanted: Collection[str]) -> dict[str, str]:
    return {row["digest"]: row["text"] for row in reader.lines(name) if row["digest"] in wanted}
