from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.core.errors import InvalidInput
from testbed.record.spans import Span, read

SERVICE = Path(__file__).resolve().parents[2] / "fixtures" / "spans" / "service.jsonl"


def otlp(spans: list[Span]) -> dict[str, Any]:
    """The same spans as an OTLP exporter writes them in JSON."""

    def tagged(value: Any) -> dict[str, Any]:
        if isinstance(value, bool):
            return {"boolValue": value}
        if isinstance(value, int):
            return {"intValue": str(value)}
        if isinstance(value, float):
            return {"doubleValue": value}
        if isinstance(value, list):
            return {"arrayValue": {"values": [tagged(v) for v in value]}}
        return {"stringValue": value}

    rows = [
        {
            "traceId": s.trace,
            "spanId": s.span,
            "parentSpanId": s.parent,
            "name": s.name,
            "startTimeUnixNano": str(s.start_ns),
            "attributes": [{"key": k, "value": tagged(v)} for k, v in s.attributes.items()],
        }
        for s in spans
    ]
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": rows}]}]}


def test_spans_of_a_real_service_are_read() -> None:
    spans = read(SERVICE)
    assert {s.kind for s in spans} >= {"CHAIN", "RETRIEVER", "EMBEDDING", "LLM"}
    ids = {s.span for s in spans}
    roots = [s for s in spans if s.parent not in ids]
    assert [s.name for s in roots].count("answer") == 7
    assert roots[0].where == f"{SERVICE}:{spans.index(roots[0]) + 1}"


@pytest.mark.parametrize("form", ["one object", "pretty", "a line each"])
def test_otlp_and_the_console_exporter_say_the_same(form: str, tmp_path: Path) -> None:
    flat = read(SERVICE)
    path = tmp_path / "otlp.json"
    if form == "a line each":
        path.write_text("".join(json.dumps(otlp([s])) + "\n" for s in flat))
    else:
        path.write_text(json.dumps(otlp(flat), indent=2 if form == "pretty" else None))
    assert [s._replace(where="") for s in read(path)] == [s._replace(where="") for s in flat]


def test_nested_attributes_are_those_with_dots(tmp_path: Path) -> None:
    value = {"arrayValue": {"values": [{"kvlistValue": {"values": [{"key": "id", "value": {"stringValue": "d"}}]}}]}}
    row = {"traceId": "a", "spanId": "b", "attributes": [{"key": "docs", "value": value}]}
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [row]}]}]}))
    assert read(path)[0].attributes == {"docs.0.id": "d"}


GOOD = json.dumps(
    {"context": {"trace_id": "1", "span_id": "2"}, "attributes": {}, "start_time": "2026-01-01T00:00:00Z"}
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: not JSON"),
        ("{}", ":1: expected a span with context and attributes, or resourceSpans"),
        (f"{GOOD}\n{GOOD[:40]}\n", ":2: not JSON"),
        (f"{GOOD}\n[1]\n", ":2: expected a JSON object with resourceSpans or attributes, found list"),
        (GOOD.replace('"1"', "1") + "\n" + GOOD, ":1: expected a string 'trace_id', found int"),
        (GOOD.replace("2026-01-01T00:00:00Z", "soon"), ":1: start_time='soon' must be an ISO 8601 time"),
        ('{"resourceSpans": 3}', ":1: expected a list 'resourceSpans', found int"),
        (
            '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "a"}]}]}]}',
            ":1: span ?: expected a string 'spanId'",
        ),
        (
            '{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "a", "spanId": "b", "attributes": [3]}]}]}]}',
            ":1: span b: expected attributes as {key, value}, found 3",
        ),
        ('{"resourceSpans": []}', "holds no spans"),
    ],
)
def test_what_is_no_span_is_one_line_with_its_place(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(text)
    with pytest.raises(InvalidInput) as told:
        read(path)
    assert str(path) in str(told.value) and says in str(told.value) and "\n" not in str(told.value)


def test_a_file_that_is_not_there_or_not_text_says_so(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name, says in (("nothing", "No such file"), ("binary", "not UTF-8")):
        with pytest.raises(InvalidInput, match=says):
            read(tmp_path / name)
