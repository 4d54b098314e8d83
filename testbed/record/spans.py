"""Spans of somebody else's service, read from files: OTLP as JSON, or what OpenTelemetry's console exporter prints.

Each line of a file is a JSON object (as the collector's file exporter writes), or the whole file is one object or a
list of them. An object holds ``resourceSpans`` (OTLP), or is one span with ``context`` and flat ``attributes``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from testbed.core.errors import InvalidInput

KIND = "openinference.span.kind"


class Span(NamedTuple):
    """One span. ``where`` is ``file:line``; ``start_ns`` is Unix time; nested attributes are flattened with dots."""

    where: str
    trace: str
    span: str
    parent: str
    name: str
    start_ns: int
    attributes: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """RETRIEVER, EMBEDDING, LLM, CHAIN, ...; "" where the span does not say."""
        return str(self.attributes.get(KIND, "")).upper()

    def text(self, name: str) -> str:
        value = self.attributes.get(name)
        return "" if value is None else str(value)


def read(path: Path) -> list[Span]:
    """All spans of a file, in its order.

    Raises
    ------
    InvalidInput : with file and line, what is not a span there.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"not UTF-8: {error.reason}"
        raise InvalidInput(f"{path}: {why}; expected spans as JSON") from error
    out = [span for where, value in _values(path, text) for span in _spans(where, value)]
    if not out:
        raise InvalidInput(f"{path}: holds no spans; expected OTLP JSON (resourceSpans) or one span a line")
    return out


def _values(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    first = text.lstrip()[:1]
    try:
        whole = json.loads(text)
    except ValueError as error:
        lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
        if first != "{" or len(lines) < 2 or not lines[0][1].rstrip().endswith("}"):
            at = getattr(error, "lineno", 1)
            raise InvalidInput(f"{path}:{at}: not JSON: {getattr(error, 'msg', error)}") from error
        for number, line in lines:
            try:
                yield f"{path}:{number}", json.loads(line)
            except ValueError as wrong:
                raise InvalidInput(f"{path}:{number}: not JSON: {getattr(wrong, 'msg', wrong)}") from wrong
        return
    for place, value in enumerate(whole if isinstance(whole, list) else [whole], start=1):
        yield (f"{path}: item {place}" if isinstance(whole, list) else f"{path}:1"), value


def _spans(where: str, value: Any) -> Iterator[Span]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: expected a JSON object with resourceSpans or attributes, found {_called(value)}")
    if "resourceSpans" not in value:
        yield _flat(where, value)
        return
    for resource in _list(where, value, "resourceSpans"):
        for scope in _list(where, resource, "scopeSpans"):
            for span in _list(where, scope, "spans"):
                yield _otlp(where, span)


def _otlp(where: str, span: Any) -> Span:
    where = f"{where}: span {span.get('spanId', '?')}" if isinstance(span, dict) else where
    attributes: dict[str, Any] = {}
    for pair in _list(where, span, "attributes"):
        if not isinstance(pair, dict) or "key" not in pair or not isinstance(pair.get("value"), dict):
            raise InvalidInput(f"{where}: expected attributes as {{key, value}}, found {json.dumps(pair)[:80]}")
        attributes.update(_flattened(str(pair["key"]), _any(pair["value"])))
    return Span(
        where,
        _named(where, span, "traceId"),
        _named(where, span, "spanId"),
        str(span.get("parentSpanId") or ""),
        str(span.get("name", "")),
        _whole(where, span.get("startTimeUnixNano", 0)),
        attributes,
    )


def _flat(where: str, value: Mapping[str, Any]) -> Span:
    context, attributes = value.get("context"), value.get("attributes")
    if not isinstance(context, dict) or not isinstance(attributes, dict):
        raise InvalidInput(f"{where}: expected a span with context and attributes, or resourceSpans")
    flat: dict[str, Any] = {}
    for name, inner in attributes.items():
        flat.update(_flattened(str(name), inner))
    return Span(
        where,
        _named(where, context, "trace_id"),
        _named(where, context, "span_id"),
        str(value.get("parent_id") or "").removeprefix("0x"),
        str(value.get("name", "")),
        _nanoseconds(where, value.get("start_time")),
        flat,
    )


def _any(value: Mapping[str, Any]) -> Any:
    """OTLP's tagged values as plain ones."""
    if "arrayValue" in value:
        return [_any(v) for v in (value["arrayValue"] or {}).get("values", ())]
    if "kvlistValue" in value:
        return {v["key"]: _any(v.get("value", {})) for v in (value["kvlistValue"] or {}).get("values", ())}
    if "intValue" in value:
        return int(value["intValue"])
    return next((value[tag] for tag in ("stringValue", "boolValue", "doubleValue") if tag in value), None)


def _flattened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """``retrieval.documents`` as a list of objects is the same as ``retrieval.documents.0.document.id``."""
    if isinstance(value, dict):
        for inner, v in value.items():
            yield from _flattened(f"{name}.{inner}", v)
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        for place, v in enumerate(value):
            yield from _flattened(f"{name}.{place}", v)
    else:
        yield name, value


def _list(where: str, value: Any, name: str) -> list[Any]:
    found = value.get(name, []) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise InvalidInput(f"{where}: expected a list {name!r}, found {_called(found)}")
    return found


def _named(where: str, value: Mapping[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str) or not found:
        raise InvalidInput(f"{where}: expected a string {name!r}, found {_called(found)}")
    return found.removeprefix("0x")


def _whole(where: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: startTimeUnixNano={value!r} must be a whole number") from error


def _nanoseconds(where: str, value: Any) -> int:
    try:
        return int(datetime.fromisoformat(str(value)).timestamp() * 1e9)
    except ValueError as error:
        raise InvalidInput(f"{where}: start_time={value!r} must be an ISO 8601 time") from error


def _called(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
