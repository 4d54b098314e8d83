"""Readers for public traces: web and block accesses, prefix blocks of an LLM service, commits to a knowledge base.

None of them ships with the project; each function takes the folder in which the trace lies.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from testbed.core.errors import InvalidInput, unknown

LIRS = ("gli", "cs", "cpp", "ps", "loop", "multi1", "multi2")


def cache2k_web(folder: Path) -> list[int]:
    """Object accesses of an e-commerce site, one key a request, in order."""
    return _keys(folder / "web07.csv")


def lirs(folder: Path, name: str) -> list[int]:
    """A block-access trace of the LIRS paper by name: loops, scans, mixed programs."""
    if name not in LIRS:
        raise unknown("LIRS trace", name, LIRS)
    return _keys(folder / f"{name}.csv")


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """A request to an LLM service: arrival in seconds, token counts, and its chain of prefix blocks.

    ``blocks`` are ids of 512-token blocks; two requests with the same first n ids share a prefix of n blocks.
    """

    at_s: float
    n_prompt: int
    n_output: int
    blocks: tuple[int, ...]


def mooncake(folder: Path) -> list[LlmRequest]:
    """Conversations with a production LLM service, in order of arrival."""
    return [
        LlmRequest(r["timestamp"] / 1000, r["input_length"], r["output_length"], tuple(r["hash_ids"]))
        for r in _json_lines(folder / "trace.jsonl", ("timestamp", "input_length", "output_length", "hash_ids"))
    ]


def prefix_blocks(requests: Sequence[LlmRequest]) -> list[int]:
    """The blocks of all requests one after the other: the key stream that a prefix cache sees."""
    return [block for request in requests for block in request.blocks]


class FactChange(NamedTuple):
    """A commit changed a fact of a page: UTC seconds, page, release line, field, old and new value.

    ``query_id`` is the question whose answer it is, "" when none asks for it.
    """

    at_s: int
    doc_id: str
    cycle: str
    field: str
    old: str
    new: str
    query_id: str


def eol_updates(folder: Path) -> list[FactChange]:
    """Every change of a release fact, by time of its commit."""
    rows = _rows(folder / "events.csv", ("unix_time", "doc_id", "cycle", "field", "old", "new", "query_id"))
    return [
        FactChange(int(r["unix_time"]), r["doc_id"], r["cycle"], r["field"], r["old"], r["new"], r["query_id"])
        for r in rows
    ]


class VersionedQuestion(NamedTuple):
    """A question about a page, other wordings of it, and its answer by date of the page.

    An answer is the value and its aliases; None where that state of the page does not say.
    """

    query_id: str
    doc_id: str
    question: str
    paraphrases: tuple[str, ...]
    answers: Mapping[str, tuple[str, ...] | None]


def eol_versions(folder: Path) -> list[VersionedQuestion]:
    """Questions whose answers change between the states of a page."""
    return [
        VersionedQuestion(
            r["query_id"],
            r["doc_id"],
            r["question"],
            tuple(r["paraphrases"]),
            {date: None if a is None else tuple(a) for date, a in r["answers"].items()},
        )
        for r in _json_lines(folder / "queries.jsonl", ("query_id", "doc_id", "question", "paraphrases", "answers"))
    ]


def _keys(path: Path) -> list[int]:
    return [int(row["key"]) for row in _rows(path, ("seq", "key"))]


def _rows(path: Path, fields: Sequence[str]) -> Iterator[dict[str, str]]:
    with _opened(path).open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        _require(path, fields, reader.fieldnames or ())
        yield from reader


def _json_lines(path: Path, fields: Sequence[str]) -> Iterator[dict[str, Any]]:
    with _opened(path).open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            _require(path, fields, row)
            yield row


def _opened(path: Path) -> Path:
    if not path.is_file():
        raise InvalidInput(f"no trace at {path.name!r}: expected a file {path} (testbed.workloads.traces)")
    return path


def _require(path: Path, fields: Sequence[str], found: Sequence[str] | dict[str, Any]) -> None:
    missing = [field for field in fields if field not in found]
    if missing:
        raise InvalidInput(f"{path} lacks the fields {missing}; found {sorted(found)}")
