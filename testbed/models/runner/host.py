"""The second tier: demoted blocks in host memory, scored and brought back when a query asks for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch

from testbed.models.runner.copies import Copies
from testbed.models.runner.rows import Part
from testbed.models.runner.scores import block_weight

SCORED_AT_ONCE = 1024  # rows: bounds the keys and logits that exist at one time
Rotate = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class HostTier:
    """At most ``limit`` blocks of one layer. The least wanted one goes when there is no room.

    ``copies`` between it and a GPU are asynchronous, from and to pinned memory; None where there is no GPU.
    """

    def __init__(self, limit: int, block: int, copies: Copies | None = None) -> None:
        self._limit = limit
        self._block = block
        self._slot: dict[int, int] = {}  # block number -> slot
        self._wanted: dict[int, float] = {}
        self._free: list[int] = []
        self._k: torch.Tensor | None = None
        self._v: torch.Tensor | None = None
        self._pos: dict[int, torch.Tensor] = {}
        self._copies = copies

    def __len__(self) -> int:
        return len(self._slot)

    @property
    def blocks(self) -> list[int]:
        """Numbers of the blocks that are held, ascending."""
        return sorted(self._slot)

    @property
    def held_bytes(self) -> int:
        return 0 if self._k is None or self._v is None else self._k.nbytes + self._v.nbytes

    def demote(self, numbers: list[int], part: Part, wanted: list[float]) -> list[int]:
        """Take blocks whose rows follow one another in ``part``; the numbers that were dropped to make room."""
        dropped: list[int] = []
        for i, number in enumerate(numbers):
            self._wanted[number] = wanted[i]
            self._write(number, part.take(slice(i * self._block, (i + 1) * self._block)))
            if len(self._slot) > self._limit:
                # the lowest number on a tie: the oldest
                loser = min(self._slot, key=lambda n: (self._wanted[n], n))
                self._forget(loser)
                dropped.append(loser)
        return dropped

    @property
    def _at_once(self) -> int:
        return max(1, SCORED_AT_ONCE // self._block)

    @property
    def scoring_bytes(self) -> int:
        """Bytes on the device while ``weight_of`` works: the keys of a few blocks, as they came and rotated."""
        if self._k is None:
            return 0
        return 2 * self._k.nbytes // self._k.shape[0] * min(len(self._slot), self._at_once)

    def weight_of(self, q: torch.Tensor, scaling: float, rotated: Rotate) -> torch.Tensor:
        """``block_weight`` of every block that is held, ascending.

        ``q`` (batch, heads, w, d) is rotated; ``rotated(k, pos)`` rotates (batch, n, kv_heads, d).
        """
        numbers = self.blocks
        found = []
        for at in range(0, len(numbers), self._at_once):
            group = numbers[at : at + self._at_once]
            k = rotated(self._fetch(self._k, group, q.device), self._positions(group)).transpose(1, 2)
            found.append(block_weight(q, k, scaling, self._block))
        return torch.cat(found, -1)

    def read(self, numbers: list[int], device: torch.device) -> Part:
        """A copy of these blocks' rows, in their order, on the device."""
        k, v = self._fetch(self._k, numbers, device), self._fetch(self._v, numbers, device)
        token = torch.cat([torch.arange(n * self._block, (n + 1) * self._block) for n in numbers])
        return Part(k, v, token.to(device), self._positions(numbers))

    def recall(self, numbers: list[int], device: torch.device) -> Part:
        """Take blocks out of this tier and back to the device."""
        part = self.read(numbers, device)
        for number in numbers:
            self._forget(number)
        return part

    def fork(self) -> HostTier:
        other = HostTier(self._limit, self._block, self._copies)
        other._slot, other._wanted, other._pos = dict(self._slot), dict(self._wanted), dict(self._pos)
        other._free = list(self._free)
        if self._copies is not None:
            self._copies.finish()
        other._k = None if self._k is None else self._grown(self._k.shape[0], self._k[0], self._k)
        other._v = None if self._v is None else self._grown(self._v.shape[0], self._v[0], self._v)
        return other

    def _fetch(self, pool: torch.Tensor | None, numbers: list[int], device: torch.device) -> torch.Tensor:
        assert pool is not None
        slots = [self._slot[n] for n in numbers]
        if self._copies is None:  # one gather: a copy per block costs more than the copying
            return pool[slots].transpose(0, 1).flatten(1, 2).to(device)
        with self._copies.reading():
            rows = torch.cat([pool[slot].to(device, non_blocking=True) for slot in slots], 1)
        self._copies.handed_over(rows)
        return rows

    def _positions(self, numbers: list[int]) -> torch.Tensor:
        return torch.cat([self._pos[n] for n in numbers], 1)

    def _write(self, number: int, part: Part) -> None:
        self._make_room(part)
        assert self._k is not None and self._v is not None
        slot = self._free.pop()
        for pool, rows in ((self._k, part.k), (self._v, part.v)):
            with nullcontext() if self._copies is None else self._copies.writing(rows):
                pool[slot].copy_(rows, non_blocking=True)
        self._slot[number] = slot
        self._pos[number] = part.pos.clone()

    def _make_room(self, part: Part) -> None:
        """Grow by doubling (pinned memory is slow to get, and never given back block by block)."""
        if self._free:
            return
        have = 0 if self._k is None else self._k.shape[0]
        size = min(max(8, 2 * have), self._limit + 1)
        if self._copies is not None and self._k is not None:
            self._copies.finish()
        self._k = self._grown(size, part.k, self._k)
        self._v = self._grown(size, part.v, self._v)
        self._free = list(range(size - 1, have - 1, -1))

    def _forget(self, number: int) -> None:
        self._free.append(self._slot.pop(number))
        del self._wanted[number], self._pos[number]

    def _grown(self, size: int, like: torch.Tensor, old: torch.Tensor | None) -> torch.Tensor:
        """A pool of ``size`` slots in host memory, its first ones filled from ``old``."""
        pins = self._copies is not None and self._copies.pins
        new = torch.empty(size, *like.shape, dtype=like.dtype, pin_memory=pins)
        if old is not None:
            new[: old.shape[0]] = old
        return new
