"""A query log, replayed: what was asked, by whom and when is taken from a file."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.core.errors import InvalidInput
from testbed.core.ports import Corpus
from testbed.core.types import Doc, Op, Query, Upgrade, Verb

FIELDS = ("do", "query", "doc", "version", "encoder", "session", "prompt", "at_s")


@dataclass(frozen=True, slots=True)
class Replay:
    """The ops of a log, in its order; the seed plays no part.

    The log is CSV with a header, or JSONL (by the ending of its name). A row is an ask of ``query`` (an id of the
    corpus) unless ``do`` says ``upsert`` (of ``doc`` at ``version``), ``delete`` (of ``doc``) or ``upgrade`` (to
    ``encoder``). ``session``, ``prompt`` and ``at_s`` (logical seconds, never falling; else ``gap_s`` apart) are
    optional.
    """

    path: Path
    gap_s: float = 1.0

    def ops(self, corpus: Corpus, seed: int, n_asks: int) -> tuple[Op, ...]:
        """The load, then the rows up to the ``n_asks``-th ask (fewer when the log is shorter).

        Raises
        ------
        InvalidInput : the file is missing, has no asks, or a row is wrong (with file and line).
        """
        queries = {q.id: q for q in corpus.queries}
        docs = [*corpus.docs, *(r.doc for r in corpus.revisions)]
        states, known = {(d.id, d.version): d for d in docs}, {d.id: d for d in docs}
        ops = [Op(0, 0.0, "load", corpus.docs)]
        asked = 0
        for where, row in _rows(self.path):
            if asked == n_asks:
                break
            do, item = _item(where, row, queries, states, known)
            at_s = _seconds(where, row, ops[-1].at_s, self.gap_s)
            ops.append(Op(len(ops), at_s, do, item))
            asked += do == "ask"
        if not asked:
            raise InvalidInput(f"{self.path} holds no asks; a row needs the field 'query'")
        return tuple(ops)


def _item(
    where: str,
    row: Mapping[str, Any],
    queries: Mapping[str, Query],
    states: Mapping[tuple[str, int], Doc],
    known: Mapping[str, Doc],
) -> tuple[Verb, Query | Doc | Upgrade]:
    do = _text(row, "do") or "ask"
    if do == "ask":
        query = queries.get(_text(row, "query"))
        if query is None:
            raise InvalidInput(f"{where}: query={_text(row, 'query')!r} is not a question of the data set")
        return "ask", dataclasses.replace(query, session=_text(row, "session"), prompt=_text(row, "prompt"))
    if do == "upsert":
        version = _text(row, "version")
        doc = states.get((_text(row, "doc"), int(version))) if version.isdecimal() else None
        if doc is None:
            raise InvalidInput(f"{where}: doc={_text(row, 'doc')!r} version={version!r} is not in the data set")
        return "upsert", doc
    if do == "delete":
        if _text(row, "doc") not in known:
            raise InvalidInput(f"{where}: doc={_text(row, 'doc')!r} is not in the data set")
        return "delete", known[_text(row, "doc")]
    if do == "upgrade" and _text(row, "encoder"):
        return "upgrade", Upgrade(_text(row, "encoder"))
    raise InvalidInput(f"{where}: do={do!r} must be ask, upsert, delete, or upgrade with a field 'encoder'")


def _seconds(where: str, row: Mapping[str, Any], last: float, gap_s: float) -> float:
    text = _text(row, "at_s")
    if not text:
        return last + gap_s
    try:
        at_s = float(text)
    except ValueError:
        at_s = float("nan")
    if not last <= at_s < float("inf"):
        raise InvalidInput(f"{where}: at_s={text!r} must be a number >= {last} (the row before)")
    return at_s


def _text(row: Mapping[str, Any], field: str) -> str:
    value = row.get(field)
    return "" if value is None else str(value).strip()


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows with their place; blank lines are skipped."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as e:
        reason = getattr(e, "strerror", None) or "not a UTF-8 text file"
        raise InvalidInput(f"query log {path} cannot be read: {reason}") from None
    if path.suffix == ".jsonl":
        for n, line in enumerate(lines, start=1):
            if line.strip():
                yield f"{path}:{n}", _object(f"{path}:{n}", line)
        return
    if not lines:
        return
    header = next(csv.reader(lines[:1]))
    if not {"query", "do"} & set(header):
        raise InvalidInput(f"{path}:1: expected a header with some of: {', '.join(FIELDS)}")
    reader = csv.DictReader(lines[1:], fieldnames=header)
    try:
        for row in reader:
            where = f"{path}:{reader.line_num + 1}"
            if None in row or None in row.values():
                raise InvalidInput(f"{where}: expected {len(header)} cells")
            yield where, row
    except csv.Error as e:
        raise InvalidInput(f"{path}:{reader.line_num + 1}: not CSV ({e})") from None


def _object(where: str, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise InvalidInput(f"{where}: not a JSON object")
    return row
