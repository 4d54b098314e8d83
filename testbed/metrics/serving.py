"""What each cache layer served: hit rate, valid hit rate, poisoned entries, latency.

A leaking or stale cache has a better hit rate than a correct one. The valid hit rate counts only the hits whose value
was made for this key, for this asker, from documents that are still current, with the encoder in force.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, nan
from typing import Literal, NamedTuple

from testbed.core.history import Ask, History, Lookup, parts_of
from testbed.core.types import Event

Outcome = Literal["miss", "fresh", "stale", "foreign", "wrong", "unknown"]
BAD: tuple[Outcome, ...] = ("foreign", "stale", "wrong")
# What a layer is asked; puts and deletes are apart from what an asker waits for.
_READS = frozenset({"hit", "miss", "search", "ask"})


# Metrics that a scenario may be about, by layer: hits of any kind, and those that were right to give.
_HITS = re.compile(r"(valid |bad )?hits\[([a-z0-9.]+)\]")


class Served(NamedTuple):
    """One lookup and what came of it: ``fresh`` is a valid hit, ``unknown`` one that cannot be judged."""

    op: int
    layer: str
    outcome: Outcome


class Latency(NamedTuple):
    """Quantiles of what a read took, in milliseconds; NaN when nothing was timed."""

    p50_ms: float = nan
    p95_ms: float = nan
    p99_ms: float = nan


UNTIMED = Latency()


@dataclass(frozen=True, slots=True)
class LayerServing:
    """One layer over one arm. Rates are shares of the requests, NaN when there were none.

    ``poisoned`` counts the distinct entries that served a foreign, stale or wrong value, or were made from one.
    """

    layer: str
    requests: int = 0
    fresh: int = 0
    stale: int = 0
    foreign: int = 0
    wrong: int = 0
    unknown: int = 0
    poisoned: int = 0
    latency: Latency = UNTIMED

    @property
    def hits(self) -> int:
        return self.fresh + self.stale + self.foreign + self.wrong + self.unknown

    @property
    def hit_rate(self) -> float:
        return self.hits / self.requests if self.requests else nan

    @property
    def valid_hit_rate(self) -> float:
        return self.fresh / self.requests if self.requests else nan


@dataclass(frozen=True, slots=True)
class Serving:
    """``lookups`` of asks, in order; ``layers`` outermost first, in order of first use; ``derived`` per entry.

    ``derived`` counts, for each poisoned entry (layer, op of its write), the entries that were made from it.
    ``poisonings`` are (op, layer) of each entry when it was first found poisoned, tiers aside, in order.
    """

    lookups: tuple[Served, ...]
    layers: tuple[LayerServing, ...]
    derived: Mapping[tuple[str, int], int]
    poisonings: tuple[tuple[int, str], ...]


def serve(history: History, timings: Iterable[tuple[int, str, str, int]] = ()) -> Serving:
    """Judge every lookup that an ask made. ``timings`` are rows (op, layer, kind, nanoseconds)."""
    judged = _Judge(history)
    for ask in history.asks.values():
        judged.take(ask)
    latencies = latency_of(timings)
    layers = dict.fromkeys([*(s.layer for s in judged.served), *latencies])
    return Serving(
        lookups=tuple(judged.served),
        layers=tuple(_layer(name, judged, latencies.get(name, UNTIMED)) for name in layers),
        derived=judged.derived,
        poisonings=tuple(judged.poisonings),
    )


class _Judge:
    """Goes through the asks in order, carrying which entries are poisoned from the asks that wrote them."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.served: list[Served] = []
        self.poisoned: dict[str, set[object]] = {}
        self.poisonings: list[tuple[int, str]] = []
        self.derived: dict[tuple[str, int], int] = {}
        # By identity of the put: what is wrong with its value, and the entry that made it so.
        self._tainted: dict[int, tuple[Outcome, tuple[str, int]]] = {}
        self._puts: dict[int, list[Event]] = {}
        for event in history.evidence.events:
            if event.kind == "put" and event.op in history.asks and event.layer in ("answer", "retrieval"):
                self._puts.setdefault(event.op, []).append(event)

    def take(self, ask: Ask) -> None:
        worst: tuple[Outcome, tuple[str, int]] | None = None
        inner: list[Lookup] = []
        outcome_of: dict[str, Outcome] = {}
        for lookup in ask.lookups:
            if "." in lookup.event.layer:
                inner.append(lookup)
                continue
            outcome, entry = self._outcome(lookup, ask)
            outcome_of[lookup.event.layer] = outcome
            self._note(lookup, outcome)
            if outcome in BAD and worst is None:
                worst = outcome, entry
        for lookup in inner:  # a tier of a layer served what the layer served
            whole = lookup.event.layer.partition(".")[0]
            self._note(lookup, outcome_of.get(whole, "unknown") if lookup.hit else "miss")
        if worst is None and self._is_skewed(ask):
            worst = "wrong", ("index", ask.op.index)
        if worst is not None:
            for put in self._puts.get(ask.op.index, ()):
                self._tainted[id(put)] = worst
                self._poison(ask.op.index, put)
                self.derived[worst[1]] = self.derived.get(worst[1], 0) + 1

    def _note(self, lookup: Lookup, outcome: Outcome) -> None:
        layer = lookup.event.layer
        self.served.append(Served(lookup.event.op, layer, outcome))
        if outcome in BAD:
            self._poison(lookup.event.op, lookup.write or lookup.event)

    def _poison(self, op: int, entry: Event) -> None:
        known, key = self.poisoned.setdefault(entry.layer, set()), parts_of(entry.key)
        if key not in known:
            known.add(key)
            if "." not in entry.layer:
                self.poisonings.append((op, entry.layer))

    def _outcome(self, lookup: Lookup, ask: Ask) -> tuple[Outcome, tuple[str, int]]:
        write = lookup.write
        entry = (lookup.event.layer, -1 if write is None else write.op)
        if not lookup.hit:
            return "miss", entry
        if write is not None and id(write) in self._tainted:
            return self._tainted[id(write)][0], self._tainted[id(write)][1]
        content = self._content(lookup, ask)
        if content != "fresh":
            return content, entry
        lawful = self._history.lawful(lookup)
        if lawful is None:
            return "unknown", entry
        return ("fresh" if lawful else "wrong"), entry

    def _content(self, lookup: Lookup, ask: Ask) -> Outcome:
        """What is wrong with the value itself: whose it is, then how old it is; "fresh" when nothing is."""
        event, write, tenant = lookup.event, lookup.write, ask.op.tenant
        if event.layer == "text":
            return self._text(event, tenant)
        owner = self._history.asker(write) if write is not None else tenant
        if tenant and owner not in ("", tenant):
            return "foreign"
        if event.layer == "answer":
            return "foreign" if ask.foreign else "stale" if ask.stale else "fresh"
        if event.layer == "retrieval":
            if any(self._history.timeline.tenant(i) not in (None, "", tenant) for i in ask.ranking) and tenant:
                return "foreign"
            aged = "epoch" in lookup.differs and self._history.unchanged(lookup) is False
            return "stale" if aged or any(self._gone(i, event.op) for i in ask.ranking) else "fresh"
        return "fresh"

    def _text(self, event: Event, tenant: str) -> Outcome:
        doc_id, version = event.key.get("doc", ""), event.data.get("version")
        if tenant and self._history.timeline.tenant(doc_id) not in (None, "", tenant):
            return "foreign"
        row = self._history.timeline.current(doc_id, event.op)
        known = self._history.timeline.since(doc_id, event.op) >= 0 and isinstance(version, int)
        return "stale" if known and (row is None or row.version != version) else "fresh"

    def _gone(self, doc_id: str, op: int) -> bool:
        timeline = self._history.timeline
        return timeline.since(doc_id, op) >= 0 and timeline.current(doc_id, op) is None

    def _is_skewed(self, ask: Ask) -> bool:
        """Whether what should have been found, or what was found, lies in another encoder's space than the question."""
        if not self._history.searches_index:
            return False
        gold = self._history.evidence.gold.get(ask.op.index)
        sought = {doc_id for doc_id, grade in gold.relevant.items() if grade} if gold else set()
        return any(
            stray.key.get("doc") in sought or stray in [row for _, row in search.rows]
            for search in ask.searches
            for stray in search.strays
        )


def layer_of(metric: str) -> str:
    """The layer of ``hits[<layer>]``, ``valid hits[<layer>]`` or ``bad hits[<layer>]``; "" for another metric."""
    found = _HITS.fullmatch(metric)
    return found.group(2) if found else ""


def rates(serving: Serving, metric: str) -> dict[int, float]:
    """By ask that reached the layer, the share of its lookups there that were hits: any, valid or bad ones."""
    which = metric.partition("hits[")[0].strip()
    counted: tuple[str, ...] = {"valid": ("fresh",), "bad": BAD}.get(which, ("fresh", "unknown", *BAD))
    layer, seen = layer_of(metric), dict[int, list[bool]]()
    for served in serving.lookups:
        if served.layer == layer:
            seen.setdefault(served.op, []).append(served.outcome in counted)
    return {op: sum(hits) / len(hits) for op, hits in seen.items()}


def latency_of(timings: Iterable[tuple[int, str, str, int]]) -> dict[str, Latency]:
    """Quantiles of the reads of each layer, by the nearest-rank method."""
    by_layer: dict[str, list[int]] = {}
    for _, layer, kind, ns in timings:
        if kind in _READS:
            by_layer.setdefault(layer, []).append(ns)
    return {
        layer: Latency(*(_rank(sorted(found), share) / 1e6 for share in (0.50, 0.95, 0.99)))
        for layer, found in by_layer.items()
    }


def _rank(ordered: list[int], share: float) -> int:
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def _layer(name: str, judged: _Judge, latency: Latency) -> LayerServing:
    outcomes = [s.outcome for s in judged.served if s.layer == name]
    counts = {kind: outcomes.count(kind) for kind in ("fresh", "stale", "foreign", "wrong", "unknown")}
    poisoned = len(judged.poisoned.get(name, ()))
    return LayerServing(name, requests=len(outcomes), poisoned=poisoned, latency=latency, **counts)
