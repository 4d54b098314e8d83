"""What is known of one arm after the run: the only thing that metrics, invariants and diagnosis look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from testbed.core.types import Event, Gold, Verb


@dataclass(frozen=True, slots=True)
class OpRow:
    """An op as recorded: texts by digest. ``id`` is the query's or document's; for ``upgrade`` the encoder's name.

    ``prompt`` is the one that the caller chose, "" the service's own.
    """

    index: int
    at_s: float
    do: Verb
    id: str
    tenant: str = ""
    session: str = ""
    text: str = ""
    version: int = 0
    prompt: str = ""


class DocRow(NamedTuple):
    """One revision of a document as recorded: ``text`` is a digest, ``introduced`` the op that brought it."""

    doc_id: str
    version: int
    tenant: str
    kind: str
    text: str
    introduced: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """One recorded arm.

    ``events`` in the order they happened; ``gold`` by op of each ask; ``docs`` every revision by (id, version);
    ``texts`` by digest; ``canaries`` by tenant; ``lexicon`` None where the data set has no ledger of facts.
    """

    arm: str
    ops: tuple[OpRow, ...]
    events: tuple[Event, ...]
    gold: Mapping[int, Gold]
    docs: Mapping[tuple[str, int], DocRow]
    texts: Mapping[str, str]
    canaries: Mapping[str, str]
    lexicon: Mapping[str, Any] | None

    def answers(self) -> Iterator[Event]:
        """The ``answer`` event of every ask, in order."""
        return (e for e in self.events if e.kind == "answer")

    def versions(self) -> Iterator[tuple[OpRow, dict[str, int]]]:
        """Every op with the current version of each live document *after* it (one dict, updated in place)."""
        live: dict[str, int] = {}
        by_op: dict[int, list[DocRow]] = {}
        for row in self.docs.values():
            by_op.setdefault(row.introduced, []).append(row)
        for op in self.ops:
            for row in by_op.get(op.index, ()):
                live[row.doc_id] = row.version
            if op.do == "delete":
                live.pop(op.id, None)
            yield op, live
