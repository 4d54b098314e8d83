"""A cache that also answers for a question it has only seen in other words."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.caches import codec
from testbed.core.clock import Clock, LogicalClock
from testbed.core.errors import InvalidInput
from testbed.core.ports import Vectors
from testbed.core.types import Key

_SLACK = 1e-4  # float32 sums differ from exact ones by less than this; what passes it is scored again in float64


class SemanticCache:
    """Entries whose key differs in the part ``text`` only can stand in for each other.

    ``get`` looks for the same text first, then goes through the stored texts of the same group (all other key parts
    equal) from the most similar down, as long as the similarity is at least ``threshold``, and serves the first that
    ``gate`` lets pass. Exact: every text of the group is compared. Ties go to the smaller text, never to the older.

    Parameters
    ----------
    embed : text -> (dim,) float32, norm 1
    threshold : least inner product, compared after rounding to 1e-6
    gate : (asked text, stored text) -> do they ask the same thing? Similarity cannot tell 30 days from 45 days.
    capacity : entries over all groups; least recently used goes first. None: no bound.
    clock : logical time for ``ttl_s``; without one, time stands still
    """

    def __init__(
        self,
        embed: Callable[[str], Vectors],
        threshold: float,
        gate: Callable[[str, str], bool],
        capacity: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        if capacity is not None and capacity < 1:
            raise InvalidInput(f"capacity={capacity} must be >= 1, or None for no bound (caches/semantic.py)")
        self.threshold = threshold
        self.capacity = capacity
        self.embed = embed
        self.gate = gate
        self._clock = clock if clock is not None else LogicalClock()
        self._groups: dict[Key, _Group] = {}
        self._used: OrderedDict[Key, None] = OrderedDict()

    def get(self, key: Key) -> Any | None:
        others, text = _split(key)
        group = self._groups.get(others)
        if group is None:
            return None
        for stored in self._candidates(group, text):
            value = codec.unpack(group.entry(stored), self._clock.now())
            if value is not None:
                self._used.move_to_end(_joined(others, stored, key))
                return value
        return None

    def _candidates(self, group: _Group, text: str) -> Iterator[str]:
        """Stored texts that may answer for ``text``, best first: itself, then the near ones that the gate lets pass."""
        if text in group:
            yield text
        for stored in self.near(group, text):
            if stored != text and self.gate(text, stored):
                yield stored

    def near(self, group: _Group, text: str) -> list[str]:
        """Stored texts that are similar enough, most similar first."""
        return group.near(self.embed(text), self.threshold)

    def put(self, key: Key, value: Any, *, ttl_s: float | None = None) -> None:
        others, text = _split(key)
        entry = codec.pack(value, math.inf if ttl_s is None else self._clock.now() + ttl_s)
        group = self._groups.setdefault(others, _Group())
        if text in group:
            group.replace(text, entry)
        else:
            group.add(text, self.embed(text), entry)
        self._used[key] = None
        self._used.move_to_end(key)
        if self.capacity is not None and len(self._used) > self.capacity:
            self.delete(next(iter(self._used)))

    def delete(self, key: Key) -> None:
        """Forget the entry of exactly this text; near ones stay."""
        if key not in self._used:
            return
        del self._used[key]
        others, text = _split(key)
        group = self._groups[others]
        group.remove(text)
        if not len(group):
            del self._groups[others]

    def fresh(self) -> SemanticCache:
        return SemanticCache(self.embed, self.threshold, self.gate, self.capacity, self._clock)

    @property
    def held_bytes(self) -> int:
        """Bytes of the keys, entries and vectors held, expired ones included."""
        return sum(codec.key_bytes(key) for key in self._used) + sum(g.held_bytes for g in self._groups.values())

    def __len__(self) -> int:
        """Entries held, expired ones included."""
        return len(self._used)


def _split(key: Key) -> tuple[Key, str]:
    return key.without("text"), key.get("text")


def _joined(others: Key, text: str, like: Key) -> Key:
    """The key under which ``text`` was put, given one of the same group."""
    return like if like.get("text") == text else others.replace(text=text)


class _Group:
    """Texts with their vectors and entries; slot i of every list belongs together."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._entries: list[bytes] = []
        self._slots: dict[str, int] = {}
        self._vectors: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)

    def __len__(self) -> int:
        return len(self._texts)

    def __contains__(self, text: str) -> bool:
        return text in self._slots

    @property
    def held_bytes(self) -> int:
        """Bytes of the entries and of the vectors in use; not of the room for more."""
        return sum(map(len, self._entries)) + self._vectors[: len(self._texts)].nbytes

    def entry(self, text: str) -> bytes:
        return self._entries[self._slots[text]]

    def replace(self, text: str, entry: bytes) -> None:
        self._entries[self._slots[text]] = entry

    def add(self, text: str, vector: Vectors, entry: bytes) -> None:
        n = len(self._texts)
        if n == len(self._vectors):
            grown = np.zeros((max(8, 2 * n), vector.size), dtype=np.float32)
            if n:
                grown[:n] = self._vectors[:n]
            self._vectors = grown
        self._vectors[n] = vector.reshape(-1)
        self._slots[text] = n
        self._texts.append(text)
        self._entries.append(entry)

    def remove(self, text: str) -> None:
        """The last slot moves into the gap."""
        gap, last = self._slots.pop(text), len(self._texts) - 1
        if gap != last:
            self._texts[gap], self._entries[gap] = self._texts[last], self._entries[last]
            self._vectors[gap] = self._vectors[last]
            self._slots[self._texts[gap]] = gap
        self._texts.pop()
        self._entries.pop()

    def near(self, vector: Vectors, threshold: float) -> list[str]:
        """Texts at least this similar, most similar first; exact ties by text."""
        held = self._vectors[: len(self._texts)]
        query = vector.reshape(-1)
        slots = np.flatnonzero(held @ query >= threshold - _SLACK)
        if not slots.size:
            return []
        # Summed in float64 and row by row, so that a score does not depend on what else is held.
        scores = np.round((held[slots].astype(np.float64) * query.astype(np.float64)).sum(axis=1), 6)
        kept = [(-s, self._texts[i]) for s, i in zip(scores.tolist(), slots.tolist(), strict=True) if s >= threshold]
        return [text for _, text in sorted(kept)]
