"""Reading data files at the edge: every complaint is one line with file and line number."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InvalidInput

MAX_LINE = 4_000_000  # characters; a longer line is a mistake (a whole file on one line), not a document
Row = tuple[str, Mapping[str, Any]]  # where ("file:line") and what


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Non-empty lines with their place (``file:line``)."""
    try:
        file = path.open("r", encoding="utf-8", newline=None)
    except FileNotFoundError:
        raise InvalidInput(f"{path} is missing") from None
    except (OSError, ValueError) as e:
        raise InvalidInput(f"{path} cannot be read: {_reason(e)}") from None
    with file:
        number = 0
        while True:
            number += 1
            where = f"{path}:{number}"
            try:
                line = file.readline(MAX_LINE + 1)
            except UnicodeDecodeError as e:
                raise InvalidInput(f"{where}: not UTF-8 ({e.reason} in or after this line)") from None
            except OSError as e:
                raise InvalidInput(f"{path} cannot be read: {_reason(e)}") from None
            if not line:
                return
            if len(line) > MAX_LINE:
                raise InvalidInput(f"{where}: line is longer than {MAX_LINE} characters; one JSON object a line")
            if "\0" in line:
                raise InvalidInput(f"{where}: NUL character in the line; is this a text file?")
            if line.strip():
                yield where, line.rstrip("\n")


def read_jsonl(path: Path) -> Iterator[Row]:
    """The objects of a JSONL file."""
    for where, line in read_lines(path):
        if where.endswith(":1"):
            line = line.removeprefix("\ufeff")
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as e:
            reason = e.msg if isinstance(e, json.JSONDecodeError) else "too deeply nested or too large a number"
            raise InvalidInput(f"{where}: not a JSON object ({reason})") from None
        if not isinstance(row, dict):
            raise InvalidInput(f"{where}: expected a JSON object, found {_kind(row)}")
        yield where, row


def text(row: Row, field: str, *, default: str | None = None) -> str:
    """A string field; without a default it must be there and hold more than blanks."""
    where, values = row
    value = values.get(field, default)
    if value is None and default is None:
        found = "null" if field in values else f"fields: {', '.join(sorted(map(str, values))) or 'none'}"
        raise InvalidInput(f"{where}: field {field!r} is missing ({found})")
    value = default if value is None else value
    if not isinstance(value, str):
        raise InvalidInput(f"{where}: field {field!r} must be a string, found {_kind(value)}")
    if default is None and not value.strip():
        raise InvalidInput(f"{where}: field {field!r} is empty")
    if "\0" in value:
        raise InvalidInput(f"{where}: NUL character in field {field!r}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{where}: field {field!r} holds half a surrogate pair, which is no text") from None
    return value


def name(row: Row, field: str, *, default: str | None = None) -> str:
    """An id: a string without blanks or control characters, so that it fits into a TREC file and a key."""
    value = text(row, field, default=default)
    if any(c.isspace() or unicodedata.category(c) == "Cc" for c in value):
        raise InvalidInput(f"{row[0]}: {field}={value!r} must hold no blanks or control characters")
    if len(value) > 512:
        raise InvalidInput(f"{row[0]}: {field} has {len(value)} characters; at most 512")
    return value


def texts(row: Row, field: str) -> tuple[str, ...]:
    """A list of strings, nested lists flattened; () when absent or null."""
    where, values = row
    found: list[str] = []
    pending = [values.get(field) or []]
    while pending:
        value = pending.pop(0)
        if isinstance(value, list):
            pending = [*value, *pending]
        elif isinstance(value, str):
            found.append(value)
        else:
            raise InvalidInput(f"{where}: field {field!r} must be a list of strings, found {_kind(value)} in it")
    return tuple(dict.fromkeys(v for v in found if v.strip()))


def integer(row: Row, field: str, default: int) -> int:
    where, values = row
    value = values.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{where}: field {field!r} must be a whole number, found {_kind(value)}")
    return value


def mapping(row: Row, field: str) -> Mapping[str, Any]:
    where, values = row
    value = values.get(field)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: field {field!r} must be an object, found {_kind(value)}")
    return value


def read_json(path: Path) -> Mapping[str, Any]:
    """One JSON object that fills a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInput(f"{path} is missing") from None
    except (OSError, ValueError, RecursionError) as e:
        raise InvalidInput(f"{path} is not a JSON object: {_reason(e)}") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{path}: expected a JSON object, found {_kind(value)}")
    return value


def read_qrels(path: Path, documents: Mapping[str, Any], queries: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Relevance grades by query and document, those >= 1: three columns, tab-separated; a header line is skipped.

    Raises
    ------
    InvalidInput : the file is missing or empty, a row has not three columns, its grade is no whole number, it names an
        unknown query or document, or repeats a pair.
    """
    if not path.exists():
        raise InvalidInput(f"{path} is missing; relevance is needed as query id, document id, grade (tab-separated)")
    found: dict[str, dict[str, int]] = {}
    judged: set[tuple[str, str]] = set()
    for where, line in read_lines(path):
        cells = line.split("\t")
        if len(cells) != 3:
            raise InvalidInput(f"{where}: expected 3 tab-separated columns, found {len(cells)}")
        query, document, grade = cells
        if where.endswith(":1") and not grade.strip().lstrip("-").isdecimal():
            continue
        if query not in queries:
            raise InvalidInput(f"{where}: query id {query!r} is not in the queries file")
        if document not in documents:
            raise InvalidInput(f"{where}: document id {document!r} is not in the corpus file")
        if not grade.strip().isdecimal():
            raise InvalidInput(f"{where}: relevance={grade!r} must be a whole number >= 0")
        if (query, document) in judged:
            raise InvalidInput(f"{where}: query {query!r} and document {document!r} occur twice")
        judged.add((query, document))
        if int(grade):
            found.setdefault(query, {})[document] = int(grade)
    if not found:
        raise InvalidInput(f"{path} holds no row with a relevance >= 1")
    return found


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__).splitlines()[0][:200]
