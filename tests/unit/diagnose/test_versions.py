from __future__ import annotations

from typing import Any

from testbed.diagnose.versions import table
from tests.histories.trace import evidence

OLD, NEW = "a" * 12, "b" * 12
PARTS = [
    {"model": "minilm", "fingerprint": OLD, "tokenizer": "cased"},
    {"model": "minilm", "fingerprint": NEW, "tokenizer": "uncased"},
]


def event(layer: str, kind: str, value: str = "", data: dict[str, Any] | None = None, **key: str) -> dict[str, Any]:
    return {"event": {"layer": layer, "kind": kind, "key": key, "value": value, "data": data or {}}}


def vector(encoder: str) -> str:
    return f"vector:{encoder}:t"


def test_the_three_parties_are_named_by_what_their_vectors_show() -> None:
    rows = table(
        evidence(
            [
                {"op": {"do": "load"}},
                event("index", "put", vector(OLD), doc="d1"),
                event("index", "put", vector(OLD), doc="d2"),
                event("index", "put", vector(OLD), doc="gone"),
                event("index", "delete", doc="gone"),
                {"op": {"do": "ask"}},
                event("embedding", "hit", vector(OLD), role="query"),
                {"op": {"do": "upgrade"}},
                event("index", "put", vector(NEW), doc="d2"),
                {"op": {"do": "ask"}},
                event("embedding", "hit", vector(NEW), role="query"),
                event("stack", "describe", data={"parts": PARTS}),
            ]
        )
    )
    assert rows == [
        {"part": "tokenizer", "actual": "uncased", "believed": "cased (1 of 2), uncased (1 of 2)", "agree": "no"},
        {"part": "model", "actual": "minilm bbbbbbbb", "believed": "minilm bbbbbbbb (1 of 1)", "agree": "yes"},
        {
            "part": "index",
            "actual": "minilm bbbbbbbb",
            "believed": "minilm aaaaaaaa (1 of 2), minilm bbbbbbbb (1 of 2)",
            "agree": "no",
        },
    ]


def test_a_cache_that_served_nothing_is_said_to_hold_nothing() -> None:
    rows = table(evidence([{"op": {"do": "load"}}, event("stack", "describe", data={"parts": PARTS})]))
    assert [row["agree"] for row in rows] == ["nothing cached"] * 3


def test_a_black_box_has_no_versions() -> None:
    assert table(evidence([{"op": {"do": "load"}}])) == []
    assert table(evidence([{"op": {"do": "load"}}, event("stack", "describe", data={"parts": [{"x": "y"}]})])) == []
