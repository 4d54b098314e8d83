"""One line of JSON for each recorded thing, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson

from testbed.core.evidence import DocRow, OpRow
from testbed.core.types import Claim, Event, Gold

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def line(value: Any) -> bytes:
    """The value as one line of JSON with sorted keys. Lone surrogates pass, as they do in ``core.digest``."""
    try:
        fast = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:  # a lone surrogate: not UTF-8, but it can stand in a document
        fast = b"null"
    # orjson writes NaN as null; the strict encoder refuses it, so it gets whatever may hold one.
    return fast if b"null" not in fast else (_encode(value) + "\n").encode("utf-8", "surrogatepass")


def parsed(raw: bytes) -> Any:
    """The value of one line; ValueError when it is none."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return json.loads(raw.decode("utf-8", "surrogatepass"))


def of_event(event: Event) -> dict[str, Any]:
    """Empty fields are left out: they are two thirds of the bytes of a miss."""
    row: dict[str, Any] = {"op": event.op, "at_s": event.at_s, "layer": event.layer, "kind": event.kind}
    if event.key:
        row["key"] = dict(event.key)
    if event.value:
        row["value"] = event.value
    if event.data:
        row["data"] = dict(event.data)
    return row


def to_event(row: Mapping[str, Any]) -> Event:
    return Event(**row)


def of_op(op: OpRow) -> dict[str, Any]:
    names = ("index", "at_s", "do", "id", "tenant", "session", "prompt", "text", "version")
    row = {name: getattr(op, name) for name in names}
    return {name: value for name, value in row.items() if value != "" or name == "id"}


def to_op(row: Mapping[str, Any]) -> OpRow:
    return OpRow(**row)


def of_doc(doc: DocRow) -> dict[str, Any]:
    return doc._asdict()


def to_doc(row: Mapping[str, Any]) -> DocRow:
    return DocRow(**row)


def of_gold(gold: Gold) -> dict[str, Any]:
    claim = gold.claim
    return {
        "op": gold.op,
        "query": gold.query,
        "tenant": gold.tenant,
        "subject": gold.subject,
        "relevant": dict(gold.relevant),
        "accept": list(gold.accept),
        "claim": None if claim is None else [claim.entity, claim.attribute, claim.value, claim.unit],
    }


def to_gold(row: Mapping[str, Any]) -> Gold:
    claim = row["claim"]
    return Gold(**{**row, "accept": tuple(row["accept"]), "claim": None if claim is None else Claim(*claim)})
