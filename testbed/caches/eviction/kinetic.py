"""A tournament whose winner changes with time, and which knows when it next can."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Protocol


class _Read(Protocol):
    @property
    def frequency(self) -> float: ...
    @property
    def last(self) -> int: ...


_NEVER = 1 << 62
_EMPTY = -1


class DecayingYoung:
    """Keys younger than ``window``, scored ``a * f * d**age + b * (window - age)`` with ``d = 1 - 1 / window``.

    A complete binary tree over ``n_slots`` places. Each node holds the place with the lowest score below it and the
    first tick at which some comparison below could turn over; ``lowest`` plays again only what is due. Equal scores:
    the key read least recently wins. Between two keys, the one with the larger fading count loses ground faster, so a
    comparison turns over at most once, at a tick that has a closed form (used as a lower bound).
    """

    def __init__(self, n_slots: int, window: int, gain: tuple[float, float]) -> None:
        self._size = 1 << max(1, (n_slots - 1).bit_length())
        self._a, self._b = gain
        self._close = 1e-9 * sum(gain)  # nearer scores are compared at every tick rather than trusted to a formula
        self._window = window
        self._fade = [(1 - 1 / window) ** age for age in range(window + 1)]
        self._speed = -math.log1p(-1 / window) if window > 1 else math.inf
        self._winner = [_EMPTY] * (2 * self._size)
        self._until = [_NEVER] * (2 * self._size)
        self._frequency = [0.0] * self._size
        self._last = [0] * self._size
        self._key: list[Hashable] = [None] * self._size
        self._place: dict[Hashable, int] = {}
        self._free = list(range(self._size - 1, -1, -1))

    def put(self, key: Hashable, read: _Read, now: int) -> None:
        place = self._place.get(key, _EMPTY)
        if place == _EMPTY:
            place = self._place[key] = self._free.pop()
        self._key[place], self._frequency[place], self._last[place] = key, read.frequency, read.last
        self._winner[self._size + place] = place
        self._replay_above(place, now)

    def drop(self, key: Hashable, now: int) -> None:
        place = self._place.pop(key)
        self._free.append(place)
        self._winner[self._size + place] = _EMPTY
        self._replay_above(place, now)

    def lowest(self, now: int) -> Hashable | None:
        self._replay_due(1, now)
        return None if self._winner[1] == _EMPTY else self._key[self._winner[1]]

    def _replay_above(self, place: int, now: int) -> None:
        """Up to the first node that another place wins as before: above it nothing has changed.

        There the old ticks stay; they are lower bounds still.
        """
        node = (self._size + place) >> 1
        while node:
            winner, until = self._winner[node], self._until[node]
            self._play(node, now)
            if self._winner[node] == winner != place and self._until[node] >= until:
                return
            node >>= 1

    def _replay_due(self, node: int, now: int) -> None:
        if self._until[node] > now:
            return
        self._replay_due(2 * node, now)  # never below a leaf: a leaf is due never
        self._replay_due(2 * node + 1, now)
        self._play(node, now)

    def _play(self, node: int, now: int) -> None:
        low, high = self._winner[2 * node], self._winner[2 * node + 1]
        until = min(self._until[2 * node], self._until[2 * node + 1])
        if low == _EMPTY or high == _EMPTY:
            self._winner[node], self._until[node] = max(low, high), until
            return
        lead = self._score(high, now) - self._score(low, now)
        if lead < 0 or (lead == 0 and self._last[high] < self._last[low]):
            low, high, lead = high, low, -lead
        self._winner[node] = low
        self._until[node] = min(until, self._holds_until(low, high, lead, now))

    def _score(self, place: int, now: int) -> float:
        age = now - self._last[place]
        return self._a * (self._frequency[place] * self._fade[age]) + self._b * (self._window - age)

    def _holds_until(self, low: int, high: int, lead: float, now: int) -> int:
        """A tick before which ``high``, now ``lead`` above ``low``, cannot come under it."""
        if lead < self._close:
            return now + 1
        needed = self._b * (self._last[low] - self._last[high])  # what the fading lead in counts must stay above
        counts = lead + needed
        if counts <= 0 or needed < 0:  # it grows, or it ends above
            return _NEVER
        return now + max(1, math.floor(math.log(counts / (needed + self._close)) / self._speed))
