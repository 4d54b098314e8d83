"""Evidence written by hand: rows of JSON with texts in place of their digests, and a pipeline of plain dicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from testbed.core import digest
from testbed.core.evidence import DocRow, Evidence, OpRow
from testbed.core.types import Claim, Event, Gold

HERE = Path(__file__).parent


def load(name: str) -> tuple[dict[str, Any], Evidence]:
    """A history file: what it claims (its first row) and the evidence in it."""
    rows = [json.loads(line) for line in (HERE / f"{name}.jsonl").read_text("utf-8").splitlines()]
    return rows[0]["claim"], evidence(rows[1:])


def evidence(rows: Iterable[Mapping[str, Any]], arm: str = "faulty", lexicon: Any = None) -> Evidence:
    """Rows of one key each: doc, op, event, gold, canaries. A string that starts with ``@`` stands for its digest.

    An op is numbered by its place among the ops, and an event belongs to the op before it, unless it says otherwise.
    """
    texts: dict[str, str] = {}
    docs: dict[tuple[str, int], DocRow] = {}
    ops: list[OpRow] = []
    events: list[Event] = []
    gold: dict[int, Gold] = {}
    canaries: dict[str, str] = {}
    for row in rows:
        (kind, raw), *_ = row.items()
        body = named(raw, texts)
        if kind == "doc":
            body = {"version": 1, "tenant": "", "kind": "record", "introduced": max(0, len(ops) - 1)} | body
            docs[body["doc_id"], body["version"]] = DocRow(**body)
        elif kind == "op":
            ops.append(OpRow(**({"index": len(ops), "at_s": float(len(ops)), "id": ""} | body)))
        elif kind == "event":
            events.append(Event(**({"op": ops[-1].index, "at_s": ops[-1].at_s} | body)))
        elif kind == "gold":
            op = ops[-1]
            claim = body.pop("claim", None)
            body = {"op": op.index, "query": op.id, "tenant": op.tenant, "subject": "", "relevant": {}} | body
            gold[body["op"]] = Gold(**body, claim=None if claim is None else Claim(*claim))
        elif kind == "canaries":
            canaries.update(raw)
        else:
            raise ValueError(f"{kind!r} is not a row of a history")
    return Evidence(arm, tuple(ops), tuple(events), gold, docs, texts, canaries, lexicon)


def named(value: Any, texts: dict[str, str]) -> Any:
    if isinstance(value, str) and value.startswith("@"):
        name = digest.of_text(value[1:])
        texts[name] = value[1:]
        return name
    if isinstance(value, dict):
        return {k: named(v, texts) for k, v in value.items()}
    if isinstance(value, list):
        return [named(v, texts) for v in value]
    return value


class DictStack:
    """A pipeline of four dicts over one tenant-partitioned document each, which records itself.

    ``drop`` says for a layer which parts its key loses inside, as a fault would make it. Document ``<tenant>/doc``
    answers every question; its text and so the answer carry the tenant and the revision.
    """

    def __init__(self, tenants: Iterable[str], drop: Mapping[str, frozenset[str]] | None = None) -> None:
        self.drop = dict(drop or {})
        self.tenants = tuple(tenants)
        self.version = dict.fromkeys(self.tenants, 1)
        self.rows: list[dict[str, Any]] = [{"canaries": {t: f"canary-{t}" for t in self.tenants}}]
        self.slots: dict[str, dict[tuple[tuple[str, str], ...], Any]] = {}
        self.wrong_hits = 0
        self._put_under: dict[tuple[str, str], set[tuple[tuple[str, str], ...]]] = {}
        self.rows.append({"op": {"do": "load"}})
        for tenant in self.tenants:
            self._write_doc(tenant)

    def text_of(self, tenant: str) -> str:
        return f"@{tenant} says v{self.version[tenant]} canary-{tenant}"

    def upsert(self, tenant: str) -> None:
        self.version[tenant] += 1
        op = {"do": "upsert", "id": f"{tenant}/doc", "tenant": tenant, "version": self.version[tenant]}
        self.rows.append({"op": op})
        self._write_doc(tenant)

    def lose(self, layer: str) -> None:
        """Forget everything, as a cache may at any time."""
        self.slots.pop(layer, None)

    def ask(self, tenant: str, question: str) -> None:
        self.rows.append({"op": {"do": "ask", "id": question, "tenant": tenant, "text": f"@{question}"}})
        doc = f"{tenant}/doc"
        self.rows.append({"gold": {"subject": question, "relevant": {doc: 1}}})
        key = {"text": f"@{question}", "tenant": tenant, "epoch": str(self.version[tenant])}
        answer = self._through("answer", key, lambda: self._answer(tenant, question))
        self._event("stack", "answer", {}, value=answer["text"], data=answer)

    def evidence(self, arm: str = "faulty") -> Evidence:
        return evidence(self.rows, arm)

    def _answer(self, tenant: str, question: str) -> dict[str, Any]:
        key = {"text": f"@{question}", "tenant": tenant, "epoch": str(self.version[tenant])}
        ranking = self._through("retrieval", key, lambda: self._retrieve(tenant, question))
        texts = [self._get("text", {"doc": doc_id}) for doc_id in ranking]
        sources = [[t["doc"], t["version"], t["text"]] for t in texts if t is not None]
        text = f"@answer: {sources[0][2][1:]}" if sources else "@no answer"
        return {"text": text, "ranking": ranking, "sources": sources, "abstained": not sources}

    def _retrieve(self, tenant: str, question: str) -> list[str]:
        key = {"text": f"@{question}", "tenant": tenant, "model": "a" * 12, "role": "query"}
        vector = self._through("embedding", key, lambda: f"vector:{'a' * 12}:{tenant}/{question}")
        # A question's vector finds the document of the tenant that it was expanded for.
        found = vector.split(":")[2].split("/")[0] + "/doc"
        self._event("index", "search", {"tenant": tenant, "vector": vector}, data={"ranking": [[found, 0.9]]})
        return [found]

    def _write_doc(self, tenant: str) -> None:
        doc, version, text = f"{tenant}/doc", self.version[tenant], self.text_of(tenant)
        self.rows.append({"doc": {"doc_id": doc, "version": version, "tenant": tenant, "text": text}})
        vector = f"vector:{'a' * 12}:{digest.of_text(text[1:])}"
        self._event("index", "put", {"doc": doc, "version": str(version), "tenant": tenant}, value=vector)
        self._put("text", {"doc": doc}, {"doc": doc, "version": version, "text": text})

    def _through(self, layer: str, key: dict[str, str], make: Any) -> Any:
        value = self._get(layer, key)
        if value is None:
            value = make()
            self._put(layer, key, value)
        return value

    def _inner(self, layer: str, key: dict[str, str]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((n, v) for n, v in key.items() if n not in self.drop.get(layer, ())))

    def _get(self, layer: str, key: dict[str, str]) -> Any:
        value = self.slots.get(layer, {}).get(self._inner(layer, key))
        name = "" if value is None else self._name(value)
        if value is not None and tuple(sorted(key.items())) not in self._put_under.get((layer, name), ()):
            self.wrong_hits += 1
        data = {"version": value["version"]} if layer == "text" and value else {}
        self._event(layer, "miss" if value is None else "hit", key, value=name, data=data)
        return value

    def _put(self, layer: str, key: dict[str, str], value: Any) -> None:
        self.slots.setdefault(layer, {})[self._inner(layer, key)] = value
        self._put_under.setdefault((layer, self._name(value)), set()).add(tuple(sorted(key.items())))
        data = {"version": value["version"]} if layer == "text" else {}
        self._event(layer, "put", key, value=self._name(value), data=data)

    def _name(self, value: Any) -> str:
        return value if isinstance(value, str) else digest.of_json(value)[:16]

    def _event(self, layer: str, kind: str, key: dict[str, str], value: str = "", data: Any = None) -> None:
        self.rows.append({"event": {"layer": layer, "kind": kind, "key": key, "value": value, "data": data or {}}})
